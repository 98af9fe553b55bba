"""What has to happen whenever nothing else does: one timer, however often something is heard."""

import asyncio
from collections.abc import Callable

LEAST_S = 0.001


class Silence:
    """Calls `on_silence` when nothing was heard for `every_s` seconds, again and again, until `end()`."""

    __slots__ = ("_alarm", "_every_s", "_loop", "_on_silence", "_until")

    def __init__(self, every_s: float, on_silence: Callable[[], None], first_s: float) -> None:
        """Begins; the first time may be another one."""
        self._every_s = every_s
        self._on_silence = on_silence
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + first_s
        self._alarm = self._loop.call_at(self._until, self._look)

    def hear(self) -> None:
        """Silence begins anew."""
        self._until = self._loop.time() + self._every_s

    def end(self) -> None:
        """No more calls."""
        self._alarm.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._until:
            self.hear()
            self._on_silence()
        self._alarm = self._loop.call_at(max(self._until, now + LEAST_S), self._look)
