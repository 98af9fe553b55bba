"""The tickets of one model as they come, through pauses after which everything that had come is others' by now."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from broker.work_queue import Delivery, WorkQueue


class Feed:
    """A work queue that can be exchanged for a new one. `look` is called before a batch is handed out.

    What a process reads after it stood still may have been lying in its socket for as long: then `forget` (by way of
    `look`) has thrown it away, and it comes again to whoever pulls.
    """

    def __init__(
        self,
        make: Callable[[], WorkQueue],
        look: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._make = make
        self._look = look
        self._spawn = spawn
        self._queue = make()
        self._stopping = False

    async def start(self) -> None:
        """Begins to pull; trouble shows in `batches`."""
        await self._queue.start()

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """As `WorkQueue.batches`: ends after `stop`, raises what ends the queue."""
        while not self._stopping:
            queue = self._queue
            async for batch in queue.batches():
                self._look()
                if queue is not self._queue:
                    break
                yield batch

    def forget(self) -> None:
        """Lets everything go, without a word to the broker, also what has not been read yet."""
        old, self._queue = self._queue, self._make()
        self._spawn(self._exchange(old, self._queue))

    async def ack(self, delivery: Delivery) -> None:
        """As `WorkQueue.ack`."""
        await self._queue.ack(delivery)

    def let_go(self, delivery: Delivery) -> None:
        """As `WorkQueue.let_go`."""
        self._queue.let_go(delivery)

    async def stop(self) -> None:
        """No more pulls; what is held stays alive until it is handed back."""
        self._stopping = True
        await self._queue.stop()

    async def hand_back(self) -> int:
        """Gives everything that is held to whoever pulls, at once; how much that was."""
        held = self._queue.held
        for delivery in held:
            await self._queue.nak(delivery, 0)
        return len(held)

    async def _exchange(self, old: WorkQueue, new: WorkQueue) -> None:
        await old.abandon()
        if not self._stopping:
            await new.start()
