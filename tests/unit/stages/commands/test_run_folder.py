"""How commands find a running pipeline, and what one that was killed leaves behind."""

import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.commands.broker_address import broker_options
from stages.commands.run_folder import RunFolder, find_control, find_running


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path)}


def leave(environ: dict[str, str], pid: int, started: float) -> Path:
    """The folder of a pipeline that is not there any more."""
    folder = Path(environ["XDG_CACHE_HOME"]) / "headrace" / f"up-{platform.node()}-{pid}"
    (folder / "nats").mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"url": "nats://old:1", "pid": pid, "started": started}))
    return folder


def test_a_running_pipeline_is_found_until_it_ends(environ: dict[str, str]) -> None:
    """From the moment it can be reached."""
    folder = RunFolder(environ)
    assert find_running(environ) is None
    folder.announce("nats://127.0.0.1:4567")
    found = find_running(environ)
    assert found is not None
    assert (found.url, found.pid) == ("nats://127.0.0.1:4567", os.getpid())
    assert broker_options(environ).url == "nats://127.0.0.1:4567"
    folder.remove()
    assert find_running(environ) is None
    assert not folder.path.exists()


def test_one_that_was_killed_is_not_found_and_swept_away(environ: dict[str, str]) -> None:
    """Also where its process number was given to another process meanwhile; those of other machines are let alone."""
    dead = leave(environ, 999_999_999, time.time())
    reused = leave(environ, os.getpid(), time.time() - 86_400)
    foreign = dead.parent / "up-other-machine-1"
    foreign.mkdir()
    assert find_running(environ) is None
    folder = RunFolder(environ)
    assert not dead.exists()
    assert reused == folder.path  # the same name: it was emptied
    assert not folder.store.exists()
    assert foreign.exists()
    folder.remove()


def test_logs_can_outlive_it(environ: dict[str, str]) -> None:
    """After a failure they say why; they go with the next start."""
    folder = RunFolder(environ)
    folder.logs.mkdir()
    folder.store.mkdir()
    folder.announce("nats://127.0.0.1:4567")
    folder.remove(keep_logs=True)
    assert folder.logs.exists()
    assert not folder.store.exists()
    assert find_running(environ) is None


def test_a_password_is_never_written(environ: dict[str, str]) -> None:
    """A broker that is reached with one is not announced."""
    folder = RunFolder(environ)
    folder.announce("nats://me:hush@host:4222")
    assert "hush" not in (folder.path / "state.json").read_text()
    assert find_running(environ) is None
    folder.remove()


def test_a_named_broker_goes_before_one_that_is_found(environ: dict[str, str]) -> None:
    """The option, then the variable, then the running pipeline, then the usual port."""
    assert broker_options(environ).url == "nats://127.0.0.1:4222"
    folder = RunFolder(environ)
    folder.announce("nats://found:1")
    assert broker_options({**environ, "HEADRACE_NATS_URL": "nats://variable:1"}).url == "nats://variable:1"
    named = broker_options({**environ, "HEADRACE_NATS_URL": "nats://variable:1"}, "nats://option:1")
    assert named.url == "nats://option:1"
    folder.remove()


@pytest.fixture
def near() -> Iterator[dict[str, str]]:
    """As `environ`, in a folder whose path is short whatever runs the tests."""
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        yield {"XDG_CACHE_HOME": folder}


def test_the_control_socket_is_found_where_it_lies(near: dict[str, str]) -> None:
    """In the folder of the pipeline, which is its user's alone; also where the broker's URL is not written."""
    environ = near
    folder = RunFolder(environ)
    assert find_control(environ) is None
    folder.announce("nats://user:secret@127.0.0.1:4567")
    path = folder.control()
    assert path == folder.path / "control.sock"
    assert find_control(environ) == path
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.remove()
    assert find_control(environ) is None


def test_a_path_too_long_for_a_socket_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket lies in a temporary folder then, which goes with the pipeline's own, or is swept after it."""
    environ = {"XDG_CACHE_HOME": str(tmp_path / ("long" * 25))}
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = RunFolder(environ)
    path = folder.control()
    assert path.parent.parent == tmp_path
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert find_control(environ) == path
    folder.remove()
    assert not path.parent.exists()

    dead = leave(environ, 999_999_999, time.time())
    elsewhere = tmp_path / "headrace-control-x"
    elsewhere.mkdir()
    state = {"url": "", "pid": 999_999_999, "started": 0.0, "control": str(elsewhere / "control.sock")}
    (dead / "state.json").write_text(json.dumps(state))
    RunFolder(environ).remove()
    assert not elsewhere.exists()
