"""Tokens a second as they arrive, and how long they took to come back after a disturbance."""

from collections import deque

WINDOW_S = 1.0
STEADY_S = 1.5
BACK_AT = 0.8
"""The share of the rate before at which throughput counts as back."""


class Throughput:
    """Counts tokens. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.total = 0
        self._marks: deque[tuple[float, int]] = deque()

    def add(self, tokens: int) -> None:
        self.total += tokens

    def rate(self, now: float) -> float:
        """Tokens a second over the last second, as often as this is asked. 0 until there are two looks."""
        self._marks.append((now, self.total))
        while len(self._marks) > 2 and self._marks[1][0] <= now - WINDOW_S:
            self._marks.popleft()
        then, total = self._marks[0]
        return (self.total - total) / (now - then) if now > then else 0.0


class Return:
    """Watches tokens a second and streams in progress after a fault at `at`; what they were before is given.

    Both, because what was held back meanwhile comes as a burst, which looks like throughput.
    """

    def __init__(self, at: float, rate: float, streams: int) -> None:
        self._at = at
        self._rate = rate * BACK_AT
        self._streams = streams * BACK_AT
        self._looked_at = at
        self._low_at: float | None = None
        self._back_at: float | None = None
        self.back = False
        self.low_s = 0.0

    def look(self, now: float, rate: float, streams: int) -> None:
        """`rate` is that of the second before `now`: it says nothing before the fault is a second old."""
        low = rate < self._rate or streams < self._streams
        self.back = now - self._at >= WINDOW_S and not low
        if low:
            self.low_s += now - self._looked_at
            self._low_at = now
        elif self._low_at is not None and self._back_at is None and now - self._low_at >= STEADY_S:
            self._back_at = self._low_at
        self._looked_at = now

    @property
    def seconds(self) -> float:
        """From the fault until throughput was back to stay for a while; 0 where it never was low.

        A process that comes back may disturb it once more: that is in `low_s` alone, all seconds that it was low.
        """
        if self._low_at is None:
            return 0.0
        return (self._low_at if self._back_at is None else self._back_at) - self._at
