"""Peak memory of processes that come and go, by group: what each stage took at the most, over all its lives."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import psutil

KIB_PER_MIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True)
class Reading:
    """One process, MiB of resident memory: now, and at the most since it started."""

    now: float
    peak: float


def read(pid: int) -> Reading | None:
    """None where there is no such process any more."""
    status = Path(f"/proc/{pid}/status")
    try:
        return parse(status.read_text())
    except OSError:
        pass
    with contextlib.suppress(psutil.Error):  # no /proc on this system: the peak is that of the readings
        resident = psutil.Process(pid).memory_info().rss / MIB
        return Reading(resident, resident)
    return None


def parse(status: str) -> Reading | None:
    """What `/proc/PID/status` says. None for a process that has ended and is not waited for yet: it has no memory."""
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "VmHWM" not in lines:
        return None
    now, peak = (float(lines[name].split()[0]) / KIB_PER_MIB for name in ("VmRSS", "VmHWM"))
    return Reading(now, peak)


class Memory:
    """Readings by group. `settled()` marks what each process took once it was warm, to tell growth from start-up."""

    def __init__(self) -> None:
        self._peaks: dict[str, float] = {}
        self._warm: dict[int, float] = {}
        self._growth: dict[str, float] = {}

    def look(self, group: str, pid: int) -> None:
        """Takes one process in."""
        reading = read(pid)
        if reading is None:
            return
        self._peaks[group] = max(reading.peak, self._peaks.get(group, 0.0))
        if pid in self._warm:
            self._growth[group] = max(reading.now - self._warm[pid], self._growth.get(group, 0.0))

    def settled(self, pid: int) -> None:
        """From now on this process's growth counts."""
        reading = read(pid)
        if reading is not None:
            self._warm.setdefault(pid, reading.now)

    def peaks(self) -> dict[str, float]:
        """MiB by group."""
        return {group: round(value, 1) for group, value in sorted(self._peaks.items())}

    def growth(self) -> dict[str, float]:
        """By group, the most MiB that one process took above what it had once it was warm."""
        return {group: round(value, 1) for group, value in sorted(self._growth.items())}
