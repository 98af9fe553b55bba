"""What a tree of processes uses is read from outside, within the window that counts."""

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.comparison.usage import Sampler, interpolated

BURN = "end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
BUSY = f"import sys, time; {BURN}\nprint(flush=True); sys.stdin.read()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}, 'stages.cli stage edge'])"


def test_between_readings() -> None:
    """Half way between two readings lies half of what was used between them; beyond them nothing is added."""
    times, cpu = [10.0, 20.0, 30.0], [0.0, 4.0, 5.0]
    assert interpolated(times, cpu, 15.0) == pytest.approx(2.0)
    assert interpolated(times, cpu, 30.0) == 5.0
    assert interpolated(times, cpu, 9.0) == 0.0
    assert interpolated(times, cpu, 99.0) == 5.0


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=20), st.floats(0, 250), st.floats(0, 250))
def test_never_decreases(gaps: list[float], one: float, other: float) -> None:
    """CPU time only grows, so that no window has a negative use."""
    times = [sum(gaps[:index]) for index in range(len(gaps) + 1)]
    cpu = [time_ / 2 for time_ in times]
    begin, end = sorted((one, other))
    assert interpolated(times, cpu, end) >= interpolated(times, cpu, begin) - 1e-9


def test_processes_of_a_tree() -> None:
    """What a started process starts is found too, named by its command line, with its CPU time and its memory."""
    begin = time.time()
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin
        assert parent.stdout
        with Sampler(lambda: [parent.pid]) as sampler:
            parent.stdout.readline()
            time.sleep(1.2)  # for one more look at the process table
        parent.stdin.close()
    used = {use.name: use for use in sampler.used(begin, time.time())}
    assert set(used) == {"edge-0", "edge-1"}  # the parent's command line quotes the child's
    assert max(use.cpu_s for use in used.values()) >= 0.25
    assert all(use.peak_mb > 1 and use.role == "server" for use in used.values())
    assert sum(use.cpu_s for use in sampler.used(begin - 20, begin - 10)) == 0


def test_gone_before_it_was_read() -> None:
    """A root that is gone already is no error."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    with Sampler(lambda: [process.pid]) as sampler:
        pass
    assert sampler.used(0, 1) == []
