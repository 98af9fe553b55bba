"""A chaos run leaves what can be read, and nothing else."""

from pathlib import Path

import pytest

from load.chaos_folder import ChaosFolder


@pytest.mark.parametrize(
    ("file", "said"),
    [("logs/inference.0.log", "logs: "), ("nats/nats-server.log", "the server's log: ")],
)
def test_something_to_read(file: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written stays, and the place that is named has text in it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ChaosFolder(None) as folder:
        (folder.path / "logs").mkdir()
        (folder.path / file).parent.mkdir(exist_ok=True)
        (folder.path / file).write_text("it broke\n")
        assert folder.keep().startswith(f"{said}{folder.path}")
    assert (folder.path / file).exists()


@pytest.mark.parametrize("failed", [True, False])
def test_nothing_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, failed: bool) -> None:
    """Empty logs are removed, and those of a run in which all went well."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ChaosFolder(None) as folder:
        (folder.path / "logs").mkdir()
        (folder.path / "logs" / "schedule.0.log").write_text("" if failed else "text")
        assert not failed or not folder.keep()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was asked to end leaves nothing; a folder that was named stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for named in (None, tmp_path / "named"):
        with pytest.raises(KeyboardInterrupt):
            _interrupted(named)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert (tmp_path / "named" / "file").exists()


def _interrupted(named: Path | None) -> None:
    with ChaosFolder(named) as folder:
        (folder.path / "file").write_text("text")
        raise KeyboardInterrupt
