"""CPU time and memory of a tree of processes, read from outside four times a second."""

import contextlib
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil

from load.comparison.naming import kind_of

PERIOD_S = 0.25
LOOK_FOR_CHILDREN = 4
"""Readings between two looks for new processes: that walks the whole process table."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class ProcessUse:
    """One process: CPU seconds within a window, and the most resident memory that was read while it was watched."""

    name: str
    role: str
    cpu_s: float
    peak_mb: float


@dataclass
class Series:
    """The readings of one process: unix seconds, CPU seconds since its start. It begins with its start, at 0."""

    process: psutil.Process
    times: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])
    command_line: str = ""
    peak_bytes: int = 0

    def read(self) -> None:
        """One more reading; nothing where the process has ended."""
        with contextlib.suppress(psutil.Error), self.process.oneshot():
            used = self.process.cpu_times()
            self.times.append(time.time())
            self.cpu.append(used.user + used.system)
            self.peak_bytes = max(self.peak_bytes, self.process.memory_info().rss)

    def read_command_line(self) -> None:
        """Again and again: processes give themselves a title once they know what they are."""
        with contextlib.suppress(psutil.Error):
            self.command_line = " ".join(self.process.cmdline()) or self.command_line

    def cpu_between(self, begin: float, end: float) -> float:
        """CPU seconds from `begin` to `end` (unix), interpolated between readings."""
        return interpolated(self.times, self.cpu, end) - interpolated(self.times, self.cpu, begin)


def interpolated(times: Sequence[float], values: Sequence[float], at: float) -> float:
    """The value `at` a time on the line through the readings; before and after them that of the nearest."""
    after = bisect_left(times, at)
    if after == 0:
        return values[0]
    if after == len(times):
        return values[-1]
    begin, end = times[after - 1], times[after]
    return values[after - 1] + (values[after] - values[after - 1]) * (at - begin) / (end - begin)


class Sampler:
    """A context manager: within it, the processes `roots()` and all that they start are read."""

    def __init__(self, roots: Callable[[], Sequence[int]]) -> None:
        self._roots = roots
        self._series: dict[psutil.Process, Series] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def used(self, begin: float, end: float) -> list[ProcessUse]:
        """What every process used from `begin` to `end` (unix seconds), oldest first, numbered within its kind."""
        numbers: Counter[str] = Counter()
        found: list[ProcessUse] = []
        for series in sorted(self._series.values(), key=lambda each: each.times[0]):
            kind = kind_of(series.command_line)
            name = f"{kind.name}-{numbers[kind.name]}"
            numbers[kind.name] += 1
            cpu_s = round(series.cpu_between(begin, end), 3)
            found.append(ProcessUse(name, kind.role, cpu_s, round(series.peak_bytes / MIB, 1)))
        return found

    def _run(self) -> None:
        readings = 0
        while not self._stop.wait(PERIOD_S if readings else 0):
            if readings % LOOK_FOR_CHILDREN == 0:
                self._look_for_children()
            for series in self._series.values():
                series.read()
            readings += 1
        self._look_for_children()

    def _look_for_children(self) -> None:
        for pid in self._roots():
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(pid)
                for process in (root, *root.children(recursive=True)):
                    self._series.setdefault(process, Series(process, [process.create_time()], [0.0]))
        for series in self._series.values():
            series.read_command_line()
