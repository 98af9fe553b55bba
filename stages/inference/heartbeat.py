"""A worker's heartbeats: one every half second, and one at once when schedulers have waited for what became free."""

import asyncio
from collections.abc import Awaitable, Callable

from schemas.control import WorkerStatus
from schemas.grant import Credits

COALESCE_S = 0.02
"""Heartbeats out of turn keep this distance: what becomes free meanwhile is told in one."""


class Heartbeat:
    """Sends what `status(number)` says. A heartbeat that gets lost is made up for by the next one."""

    def __init__(
        self,
        send: Callable[[WorkerStatus], Awaitable[None]],
        status: Callable[[int], WorkerStatus],
        period_s: float,
    ) -> None:
        self._send = send
        self._status = status
        self._period_s = period_s
        self._number = 0
        self._told = Credits(0, 0)
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Sends until it is cancelled."""
        while True:
            await self.beat()
            try:
                async with asyncio.timeout(self._period_s):
                    await self._wake.wait()
                    await asyncio.sleep(COALESCE_S)
            except TimeoutError:
                continue

    async def beat(self) -> None:
        """Sends one now."""
        self._wake.clear()
        self._number += 1
        status = self._status(self._number)
        self._told = status.credits
        await self._send(status)

    def soon(self) -> None:
        """Sends one out of turn."""
        self._wake.set()

    def note(self, now: Credits) -> None:
        """These are the credits now. Slots that schedulers do not know of are worth a heartbeat out of turn."""
        if now.slots > self._told.slots:
            self._wake.set()

    def told(self, now: Credits) -> None:
        """A scheduler has just been answered with these."""
        self._told = now
