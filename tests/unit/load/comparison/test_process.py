"""What is started for a comparison is gone after it, and says why it did not start."""

import os
import sys
from pathlib import Path

import psutil
import pytest

from load.comparison.process import NotStarted, Started

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(99)"
)
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); import time; time.sleep(99)"


def started(folder: Path, program: str) -> Started:
    return Started("it", [sys.executable, "-c", program], os.environ, folder)


@pytest.mark.long
def test_ready(tmp_path: Path) -> None:
    """Waiting ends when what is waited for is there; then all of its processes end, stubborn children too."""
    process = started(tmp_path, PARENT)
    try:
        process.wait_until(lambda: "here" in process.out)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 1
        assert not process.ended
    finally:
        process.stop()
    assert process.ended
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_ended_too_early(tmp_path: Path) -> None:
    """A process that ends before it is ready says why; the first line of that names no path."""
    process = started(tmp_path, "import sys; sys.exit('no room in /here')")
    with pytest.raises(NotStarted, match="no room") as raised:
        process.wait_until(lambda: False)
    assert str(raised.value).splitlines()[0] == "it ended with status 1:"
    process.stop()


def test_not_ready_in_time(tmp_path: Path) -> None:
    """Nobody waits for ever, neither for readiness nor for an end."""
    process = started(tmp_path, "import time; time.sleep(99)")
    try:
        with pytest.raises(NotStarted, match="was not ready"):
            process.wait_until(lambda: False, patience_s=0)
        with pytest.raises(NotStarted, match="did not end"):
            process.finish(0.01)
    finally:
        process.stop()
    assert process.ended


def test_finished(tmp_path: Path) -> None:
    """Its output and its exit status are those of the process; stopping it again does nothing."""
    process = started(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert process.finish(60) == 3
    assert process.out == "out\n"
    assert "err" in process.said
    process.stop()
