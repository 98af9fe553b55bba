"""Waiting for what others bring, with one timer for as long as somebody reads, not one for every message."""

import asyncio


class News:
    """`come()` wakes the one who waits. Silence counts from the begin of a wait, or from `hear()`."""

    __slots__ = ("_alarm", "_loop", "_patience_s", "_silent_at", "_waiter")

    def __init__(self) -> None:
        self._patience_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[bool] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._silent_at = 0.0

    @property
    def expected(self) -> bool:
        """Whether somebody waits, and nothing has come yet."""
        return self._waiter is not None and not self._waiter.done()

    async def wait(self, patience_s: float) -> bool:
        """True as soon as something came, false after `patience_s` of silence."""
        self._patience_s = patience_s
        self.hear()
        if self._alarm is None or self._alarm.when() > self._silent_at:
            self.close()
            self._alarm = self._loop.call_at(self._silent_at, self._look)
        self._waiter = self._loop.create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def come(self) -> None:
        """Something is there."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def hear(self) -> None:
        """Something was there for which nobody need be woken."""
        self._silent_at = self._loop.time() + self._patience_s

    def close(self) -> None:
        """Nobody waits any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _look(self) -> None:
        """Most waits are over long before this: it is set again only if one is on."""
        self._alarm = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._silent_at:
            self._alarm = self._loop.call_at(self._silent_at, self._look)
        else:
            self._waiter.set_result(False)
