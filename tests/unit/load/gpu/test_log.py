"""What a simulated GPU writes of its work, and how it is read."""

import json
import threading
import time
from dataclasses import astuple
from pathlib import Path

import pytest

from load.gpu import log as gpu_log
from load.gpu.log import GpuLog, GpuUse, GpuWork, usage


def write(path: Path, *lines: tuple[float, float, float, float, float]) -> Path:
    """A log with these lines of (t, busy_s, steps, decode, prefill)."""
    names = ("t", "busy_s", "steps", "decode", "prefill")
    path.write_text("".join(json.dumps(dict(zip(names, line, strict=True))) + "\n" for line in lines))
    return path


def test_a_window_between_two_lines(tmp_path: Path) -> None:
    """Work between two lines counts in proportion."""
    log = write(tmp_path / "log", (100, 0, 0, 0, 0), (110, 8, 100, 6400, 5000))
    assert astuple(usage(log, 102, 107)) == pytest.approx((0.8, 10, 64, 50))


def test_a_window_over_many_lines(tmp_path: Path) -> None:
    """Only what was done within the window counts, at both ends."""
    log = write(tmp_path / "log", (100, 0, 0, 0, 0), (101, 1, 10, 10, 0), (102, 1, 10, 10, 0), (103, 1.5, 30, 70, 40))
    use = usage(log, 100.5, 102.5)
    assert astuple(use) == pytest.approx(((0.5 + 0.25) / 2, (5 + 10) / 2, (5 + 30) / 15, 20 / 15))


def test_an_idle_gpu(tmp_path: Path) -> None:
    """Without a step nothing is divided by it."""
    log = write(tmp_path / "log", (100, 3, 10, 10, 0), (110, 3, 10, 10, 0))
    assert usage(log, 101, 109) == GpuUse(0, 0, 0, 0)


def test_a_line_half_written(tmp_path: Path) -> None:
    """The last line counts only once it is whole."""
    log = write(tmp_path / "log", (100, 0, 0, 0, 0), (110, 5, 10, 10, 0))
    with log.open("a") as file:
        file.write('{"t": 120, "bus')
    assert usage(log, 100, 110).busy == 0.5


def test_before_its_start_and_after_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that was not there did nothing; a window that the log knows nothing of is an error."""
    monkeypatch.setattr(gpu_log, "PATIENCE_S", 0.0)
    log = write(tmp_path / "log", (100, 0, 0, 0, 0), (110, 10, 10, 10, 0))
    assert usage(log, 90, 130).busy == 0.25
    with pytest.raises(ValueError, match="says nothing"):
        usage(log, 80, 90)


def test_a_window_without_length(tmp_path: Path) -> None:
    """Nothing has a share of no time."""
    log = write(tmp_path / "log", (100, 0, 0, 0, 0), (110, 10, 10, 10, 0))
    with pytest.raises(ValueError, match="no length"):
        usage(log, 105, 105)


def test_the_line_behind_the_window_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks right at the end of a window gets all of it."""
    monkeypatch.setattr(gpu_log, "LOOK_S", 0.01)
    log = write(tmp_path / "log", (100, 0, 0, 0, 0))
    later = threading.Timer(0.1, write, (log, (100, 0, 0, 0, 0), (110, 4, 10, 10, 0)))
    later.start()
    assert usage(log, 100, 110).busy == 0.4
    later.join()


def test_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line at the start, one again and again, and the last at the end, with what was done by then."""
    monkeypatch.setattr(gpu_log, "LINE_S", 0.01)
    work = GpuWork()
    path = tmp_path / "new" / "log"
    before = time.time()
    log = GpuLog(path, lambda: work)
    while len(path.read_text().splitlines()) < 4:
        time.sleep(0.01)
    work = GpuWork(1.5, 3, 12, 40)
    log.close()
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"t": pytest.approx(before, abs=30), "busy_s": 0, "steps": 0, "decode": 0, "prefill": 0}
    assert lines[-1] == {"t": pytest.approx(before, abs=30), "busy_s": 1.5, "steps": 3, "decode": 12, "prefill": 40}
    assert [line["t"] for line in lines] == sorted(line["t"] for line in lines)
