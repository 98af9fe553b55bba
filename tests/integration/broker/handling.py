"""A stage's stand-in on the work queue REQUESTS, whose ack wait is 1 s in these tests."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from broker import subjects
from broker.connection import Connection
from broker.jetstream_api import ApiError
from broker.publisher import Publisher
from broker.topology import TopologyMismatch, depths
from broker.work_queue import Delivery, WorkQueue

SUBJECT = subjects.request("acme", "m")
ACK_WAIT_S = 1.0
AT_ONCE_S = 0.3


class Handler:
    """A stage's stand-in: collects what its queue hands out."""

    def __init__(self, queue: WorkQueue) -> None:
        self.queue = queue
        self.got: list[tuple[Delivery, float]] = []
        self._more = asyncio.Event()
        self.task = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        async for batch in self.queue.batches():
            now = asyncio.get_running_loop().time()
            self.got += [(delivery, now) for delivery in batch]
            self._more.set()

    async def wait_for(self, count: int, within_s: float = 15.0) -> list[Delivery]:
        """The first `count` deliveries."""
        async with asyncio.timeout(within_s):
            while len(self.got) < count:
                self._more.clear()
                await self._more.wait()
        return [delivery for delivery, _ in self.got[:count]]


@asynccontextmanager
async def handling(
    connection: Connection, slots: int = 4, ensure: Callable[[], Awaitable[None]] | None = None
) -> AsyncGenerator[Handler]:
    """A started queue on REQUESTS with a handler, ended hard."""
    queue = WorkQueue(connection, "REQUESTS", "preprocess", slots=slots, ack_wait_s=ACK_WAIT_S, ensure=ensure)
    await queue.start()
    handler = Handler(queue)
    try:
        yield handler
    finally:
        await queue.abandon()
        handler.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, TopologyMismatch, ApiError):
            await handler.task


async def publish(connection: Connection, count: int) -> None:
    """Publishes `count` requests, numbered."""
    for number in range(count):
        await Publisher(connection).publish(SUBJECT, str(number).encode())


async def ack_pending(connection: Connection) -> int:
    """How many requests are handed out and not settled."""
    return (await depths(connection)).consumers["preprocess"].ack_pending


async def first_of(connection: Connection, handler: Handler) -> Delivery:
    """Sends one message through, so that the queue's pulls are known to be open."""
    await publish(connection, 1)
    return (await handler.wait_for(1))[0]
