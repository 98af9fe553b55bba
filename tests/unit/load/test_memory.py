"""Peaks are those of the kernel; growth counts from when a process was warm."""

import os
import sys

import pytest

from load.memory import Memory, Reading, parse, read


def test_status_of_a_process() -> None:
    """KiB of `/proc/PID/status` become MiB; a process that has ended has none."""
    assert parse("Name:\tpython\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\n") == Reading(100.0, 200.0)
    assert parse("Name:\tpython\nState:\tZ (zombie)\n") is None
    assert read(2**22 + 1) is None


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is only kept on Linux")
def test_what_was_freed_still_counts() -> None:
    """The peak holds what the process had for a moment, whoever looked only later."""
    memory = Memory()
    block = bytearray(64 * 1024 * 1024)
    held = read(os.getpid())
    del block
    memory.look("us", os.getpid())
    assert held is not None
    assert memory.peaks()["us"] >= held.now - 1


def test_growth_is_the_most_of_one_process() -> None:
    """Only a process that was warm before can have grown."""
    memory = Memory()
    memory.look("us", os.getpid())
    assert memory.growth() == {}
    memory.settled(os.getpid())
    block = bytearray(64 * 1024 * 1024)
    memory.look("us", os.getpid())
    assert memory.growth()["us"] > 50
    del block
