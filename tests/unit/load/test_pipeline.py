"""Nothing that a pipeline started outlives it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from load import pipeline
from load.pipeline import NotReady, Pipeline, terminate

Started = list["subprocess.Popen[bytes]"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Processes that start in place of `headrace`, which never become ready."""
    found: Started = []

    def start(*_: object) -> "subprocess.Popen[bytes]":
        found.append(subprocess.Popen(["sleep", "60"]))
        return found[-1]

    monkeypatch.setattr(Pipeline, "_start", start)
    return found


def test_an_interrupted_start(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the wait ends the processes too, for nobody else could."""
    monkeypatch.setattr(Pipeline, "_wait_until_ready", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        Pipeline(tmp_path, [])
    assert started[0].poll() is not None


def test_a_start_that_takes_too_long(started: Started, tmp_path: Path) -> None:
    """Likewise where nothing becomes ready."""
    with pytest.raises(NotReady):
        Pipeline(tmp_path, [], ready_s=0)
    assert started[0].poll() is not None


def test_interrupted_at_its_end(started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C is no reason to leave a process: each one is ended."""
    monkeypatch.setattr(Pipeline, "_wait_until_ready", _ready)
    running = Pipeline(tmp_path, [])
    running.start_stage("schedule")
    monkeypatch.setattr(pipeline, "STOP_S", 30)
    monkeypatch.setattr(subprocess.Popen, "wait", _interrupted_once(subprocess.Popen[bytes].wait))
    with pytest.raises(KeyboardInterrupt):
        running.stop()
    assert [each.wait(10) is not None for each in started] == [True, True]


def _interrupted(*_: object) -> str:
    raise KeyboardInterrupt


def _ready(*_: object) -> str:
    return "nats://nowhere"


def _interrupted_once(wait: Callable[..., int]) -> Callable[..., int]:
    interrupts = iter([KeyboardInterrupt()])

    def waiting(process: "subprocess.Popen[bytes]", timeout: float | None = None) -> int:
        for interrupt in interrupts:
            raise interrupt
        return wait(process, timeout)

    return waiting


def test_one_that_does_not_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ignores SIGTERM is killed when its time is over."""
    monkeypatch.setattr(pipeline, "STOP_S", 0.2)
    with subprocess.Popen(["sh", "-c", "trap '' TERM; echo; sleep 60 & wait; wait"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert terminate(process) == -9
