"""A tool that is asked to end does so in order, whichever signal asks."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from load.interruption import ends_when_asked

Loop = Callable[[], asyncio.AbstractEventLoop]

ASKED = pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)


@pytest.fixture(autouse=True)
def not_ignored() -> Iterator[None]:
    """Tests under `nohup` are told of a SIGHUP all the same."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@ASKED
def test_what_was_started_ends(number: signal.Signals, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks are left by their own way out; one line says why, and the status is that of the signal."""
    ended: list[str] = []

    def work() -> None:
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            ended.append("all")

    with pytest.raises(SystemExit) as left, ends_when_asked("load.tool"):
        work()
    assert (left.value.code, ended) == (status, ["all"])
    assert capsys.readouterr().err == f"load.tool: ended by {number.name}\n"


@ASKED
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_runs_is_cancelled(number: signal.Signals, status: int, loop: Loop) -> None:
    """A coroutine gets a cancel, and may await what it has to end."""
    ended: list[str] = []

    async def work() -> None:
        try:
            asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("all")

    with (
        pytest.raises(SystemExit) as left,
        ends_when_asked("load.tool"),
        asyncio.Runner(loop_factory=loop) as runner,
    ):
        runner.run(work())
    assert (left.value.code, ended) == (status, ["all"])


def test_an_error_stays_one() -> None:
    """Without a signal it is none of this file's business, and the handlers are as before."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="broken"), ends_when_asked("load.tool"):
        raise RuntimeError("broken")
    assert signal.getsignal(signal.SIGTERM) is before


def test_who_ignores_a_signal_goes_on_to() -> None:
    """Under `nohup` a terminal that closes ends nothing."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with ends_when_asked("load.tool"):
        os.kill(os.getpid(), signal.SIGHUP)


def test_in_the_background_of_a_shell(tmp_path: Path) -> None:
    """There SIGINT is ignored from the start: SIGTERM ends a tool all the same."""
    program = tmp_path / "tool.py"
    program.write_text(
        "import os, signal, time\n"
        "from load.interruption import ends_when_asked\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "with ends_when_asked('load.tool'):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(60)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, str(program)], env=environ, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (143, "load.tool: ended by SIGTERM\n")
