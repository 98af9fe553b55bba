"""The log of a simulated GPU: a line a second with what it has done since its start, and what a reader makes of it."""

import json
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

LINE_S = 1.0
PATIENCE_S = 3 * LINE_S
LOOK_S = 0.1


@dataclass(frozen=True)
class GpuWork:
    """Since the start: seconds computed, steps, the sum over steps of decoding requests, and of tokens of prompts."""

    busy_s: float = 0.0
    steps: float = 0.0
    decode: float = 0.0
    prefill: float = 0.0


@dataclass(frozen=True)
class GpuUse:
    """What a GPU did in a window: `busy` is a share of its time; decoding requests and tokens of prompts in a step."""

    busy: float
    steps_s: float
    decode_per_step: float
    prefill_per_step: float


class GpuLog:
    """Writes `work()` to a file once a second, from a thread of its own, and once more at the end."""

    def __init__(self, path: Path, work: Callable[[], GpuWork]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._work = work
        self._closing = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._write_on, name="gpu-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Writes the last line. More than once does no harm."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join()
        self._write()
        self._file.close()

    def _write_on(self) -> None:
        while not self._closing.wait(LINE_S):
            self._write()

    def _write(self) -> None:
        self._file.write(json.dumps({"t": round(time.time(), 6), **asdict(self._work())}) + "\n")


def usage(path: Path | str, begin: float, end: float) -> GpuUse:
    """What the GPU did from `begin` to `end` (Unix seconds), between lines in proportion.

    Waits for the line behind `end` for as long as a running GPU may take to write it; what a GPU that has ended left
    out is idle time. Raises `ValueError` for a window without length, or one that ends before the log begins.
    """
    if end <= begin:
        raise ValueError("the window has no length")
    lines = _lines_until(Path(path), end)
    if not lines or end < lines[0][0]:
        raise ValueError(f"{path} says nothing of the time before {end}")
    first, last = _at(lines, begin), _at(lines, end)
    busy_s, steps, decode, prefill = (late - early for early, late in zip(first, last, strict=True))
    return GpuUse(busy_s / (end - begin), steps / (end - begin), decode / max(steps, 1), prefill / max(steps, 1))


Line = tuple[float, tuple[float, float, float, float]]


def _lines_until(path: Path, end: float) -> list[Line]:
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        lines = _lines(path)
        if (lines and lines[-1][0] >= end) or time.monotonic() > give_up_at:
            return lines
        time.sleep(LOOK_S)


def _lines(path: Path) -> list[Line]:
    """All whole lines; the last may be half written."""
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    read = [json.loads(line) for line in whole.splitlines()]
    return [(one["t"], (one["busy_s"], one["steps"], one["decode"], one["prefill"])) for one in read]


def _at(lines: list[Line], moment: float) -> tuple[float, ...]:
    """The counts at that moment, between two lines in proportion."""
    index = bisect_right(lines, moment, key=lambda line: line[0])
    if index == 0:
        return lines[0][1]
    if index == len(lines):
        return lines[-1][1]
    (before, low), (after, high) = lines[index - 1], lines[index]
    share = (moment - before) / (after - before)
    return tuple(early + share * (late - early) for early, late in zip(low, high, strict=True))
