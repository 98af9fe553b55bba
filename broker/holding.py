"""One partition while this replica holds it: gained, one day told to leave, and done with."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger()

Callback = Callable[[int], Awaitable[None]]


class Holding:
    """Runs `on_gained`, and once told to leave `on_lost`, one after the other; then calls `on_left`.

    `revision` is the lease's in the bucket as we know it, None once it is no longer ours. `renewed_at` is when its
    last renewal was sent (loop time). An `on_gained` that raises sets `failed`, and nothing was gained.
    """

    def __init__(self, partition: int, revision: int, renewed_at: float) -> None:
        self.partition = partition
        self.revision: int | None = revision
        self.renewed_at = renewed_at
        self.failed = False
        self.left = False
        self._told_to_leave = asyncio.Event()

    def begin(self, on_gained: Callback, on_lost: Callback, on_left: Callable[[], None]) -> None:
        self.task = asyncio.create_task(self._live(on_gained, on_lost, on_left))

    @property
    def leaving(self) -> bool:
        return self.left or self._told_to_leave.is_set()

    def renewed(self, revision: int, at: float) -> None:
        if self.revision is not None:  # it may have been lost while the answer was on its way
            self.revision, self.renewed_at = revision, at

    def leave(self) -> None:
        """`on_lost` follows; the lease stays ours, and has to be renewed, until it returned."""
        self._told_to_leave.set()

    def lose(self) -> None:
        """Like `leave`, but the lease may be somebody else's by now: there is nothing to free afterwards."""
        self.revision = None
        self._told_to_leave.set()

    async def _live(self, on_gained: Callback, on_lost: Callback, on_left: Callable[[], None]) -> None:
        try:
            await on_gained(self.partition)
        except Exception:
            log.exception("lease.gain_failed", partition=self.partition)
            self.failed = True
        else:
            await self._told_to_leave.wait()
            await self._say_farewell(on_lost)
        self.left = True
        on_left()

    async def _say_farewell(self, on_lost: Callback) -> None:
        try:
            await on_lost(self.partition)
        except Exception:
            log.exception("lease.loss_failed", partition=self.partition)
