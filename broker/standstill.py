"""Notices that this process itself stood still (SIGSTOP, a frozen container, a swapped-out host)."""

import asyncio
from collections.abc import Callable


class StandstillWatch:
    """Calls `on_standstill` with the seconds for which the event loop did not run, where they exceed `limit_s`.

    It notices within the first turn of the loop after waking; whoever must know for certain before the next step
    calls `look` there.
    """

    def __init__(self, limit_s: float, on_standstill: Callable[[float], None]) -> None:
        self._limit_s = limit_s
        self._on_standstill = on_standstill
        self._looked_at = 0.0

    def start(self) -> None:
        self._looked_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._watch())

    def stop(self) -> None:
        self._task.cancel()

    def look(self) -> None:
        """Calls `on_standstill` now if it is due."""
        now = asyncio.get_running_loop().time()
        stood_still, self._looked_at = now - self._looked_at, now
        if stood_still > self._limit_s:
            self._on_standstill(stood_still)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._limit_s / 4)
            self.look()
