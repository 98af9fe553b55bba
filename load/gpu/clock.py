"""When the steps of a simulated GPU are over, and how one waits for that."""

import time
from concurrent.futures import Future
from typing import Any


class GpuClock:
    """Takes steps one at a time, each behind the one before. Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._queued_s = 0.0
        self._free_at = 0.0

    def start(self, now: float, seconds: float) -> float:
        """Queues a step at the time `now`; the time of its end."""
        self._free_at = max(now, self._free_at) + seconds
        self._queued_s += seconds
        return self._free_at

    def busy_s(self, now: float) -> float:
        """Seconds computed until `now`: the rest of what is queued has yet to be done."""
        return self._queued_s - max(0.0, self._free_at - now)


class Step(Future[Any]):
    """The output of a step, there when its time is over. Whoever asks earlier sleeps until then.

    That is the thread which would wait anyway, so that nobody has to wake it: no thread, no hand-over.
    """

    def __init__(self, output: Any, ends_at: float = 0.0) -> None:
        """`ends_at` as `time.monotonic()` has it."""
        super().__init__()
        self.set_result(output)
        self._ends_at = ends_at

    def done(self) -> bool:
        return time.monotonic() >= self._ends_at

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the end of the step. Raises `TimeoutError` where `timeout` seconds end before it."""
        remaining = self._ends_at - time.monotonic()
        if timeout is not None and timeout < remaining:
            time.sleep(timeout)
            raise TimeoutError
        if remaining > 0:
            time.sleep(remaining)
        return super().result()
