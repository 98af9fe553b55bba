"""What the installation says is missing."""

import sys
from pathlib import Path

import pytest

from install import machine


def words(engine: str) -> str:
    return " ".join(f"{it.what} {it.remedy}" for it in machine.missing(engine, Path.cwd()))


def test_an_old_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs a Python that is too old is told which ones do, and how to name one."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    assert "Python 3.11 to 3.14" in words("simulated")
    assert "PYTHON=" in words("simulated")


def test_macos_is_offered_the_simulated_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM has no wheel for macOS, but everything else runs there."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "ENGINE=simulated" in words("cpu")
    assert words("simulated") == ""


def test_libnuma_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's CPU build loads libnuma: who lacks it reads how to install it, not a traceback."""

    def refuse(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(machine.ctypes, "CDLL", refuse)
    assert "libnuma1" in words("cpu")
    assert words("simulated") == ""


def test_a_full_disk_is_named_before_anything_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that cannot fit is refused at once."""
    monkeypatch.setitem(machine.DISK_GB, "simulated", 10**9)
    assert "free disk" in machine.missing("simulated", tmp_path)[0].what
