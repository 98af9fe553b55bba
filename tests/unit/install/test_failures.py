"""What whoever installs reads of a step that fails, and of one that takes its time."""

import os
import subprocess
import sys

import pytest

from install import __main__ as program
from install.environment import Environment, with_bars


def install(monkeypatch: pytest.MonkeyPatch, step: str) -> int:
    """The program's exit status where a step of it is this Python code."""

    def create(_: Environment) -> None:
        subprocess.run([sys.executable, "-c", step], check=True)

    monkeypatch.setattr(Environment, "create", create)
    monkeypatch.setattr(sys, "argv", ["install", "simulated"])
    return program.main()


def test_a_killed_step_is_told_in_words(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Where the kernel ended a step for want of memory, that is said, and that another try may do: no bare -9."""
    assert install(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)") == 1
    said = capfd.readouterr().err
    assert "killed" in said
    assert "memory" in said
    assert "try `make run` again" in said
    assert "-9" not in said


def test_any_other_failure_keeps_its_status(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A step that fails by itself has said why: its status is told, and nothing of memory."""
    assert install(monkeypatch, "raise SystemExit(3)") == 1
    said = capfd.readouterr().err
    assert "exit status 3" in said
    assert "memory" not in said


@pytest.mark.parametrize("terminal", [True, False])
def test_bars_are_for_terminals(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log gets no progress bar, which would be hundreds of lines in it; a terminal keeps its own."""
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    code = "from tqdm.auto import tqdm; list(tqdm(range(3)))"
    env = with_bars(os.environ, terminal=terminal)
    drawn = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stderr
    assert bool(drawn) is terminal
