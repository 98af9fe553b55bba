"""Models of the hub: a name that is none, and a hub that does not answer, are said at once and in words."""

import time
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from stages.inference import hub
from stages.inference.engine import EngineMisconfigured
from stages.inference.hub import hub_files


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


def reachable(monkeypatch: pytest.MonkeyPatch, download: Any) -> None:
    monkeypatch.setattr(hub, "_reached", lambda: True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)


def test_a_hub_out_of_reach_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens there: one short try, no retries, and the message names the hub."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    begin = time.monotonic()
    with pytest.raises(EngineMisconfigured, match=r"^org/model .*http://127\.0\.0\.1:9\) could not be reached$"):
        hub_files("org/model", None, ["config.json", "tokenizer.json"])
    assert time.monotonic() - begin < hub.REACH_S + 1


def hang(_: list[Any]) -> None:
    time.sleep(2)


def test_a_hub_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking up a name may hang for longer than any limit of the request."""
    monkeypatch.setattr(hub, "REACH_S", 0.1)
    monkeypatch.setattr(hub, "_ask", hang)
    begin = time.monotonic()
    with pytest.raises(EngineMisconfigured, match="could not be reached"):
        hub_files("org/model", None, ["config.json"])
    assert time.monotonic() - begin < 1.8


def test_without_the_hub_what_was_downloaded_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker that starts again while the network is away goes on with its model."""
    file = tmp_path / "config.json"
    file.write_text("{}")

    def download(_: str, name: str, *, revision: str | None, local_files_only: bool) -> str:
        assert local_files_only
        if name != "config.json":
            raise errors.LocalEntryNotFoundError(name)
        return str(file)

    monkeypatch.setattr(hub, "_reached", lambda: False)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert hub_files("org/model", None, ["config.json", "tokenizer.json"]) == {"config.json": b"{}"}


def test_a_name_that_the_hub_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, without the library's own words."""

    def download(*_: Any, **__: Any) -> str:
        response: Any = type("Response", (), {"headers": {}, "request": None, "status_code": 404})()
        raise errors.RepositoryNotFoundError("404 Client Error\n\nRepository Not Found\nrepo_type", response=response)

    reachable(monkeypatch, download)
    with pytest.raises(EngineMisconfigured, match=r"^org/nonexistent is no folder here and no model of the hub .*$"):
        hub_files("org/nonexistent", None, ["config.json"])


@pytest.mark.parametrize("name", ["a/b/c", "two words", "org/model:tag"])
def test_what_cannot_be_a_name_is_not_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path that does not exist, a name with blanks: the message speaks of folders and names."""
    monkeypatch.setattr(hub, "_reached", lambda: pytest.fail("the hub was asked"))
    with pytest.raises(EngineMisconfigured, match=rf"^{name} is no folder here, and no name \(organisation/model\)"):
        hub_files(name, None, ["config.json"])
