"""Exchanging a work queue after a long pause."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from broker.work_queue import Delivery
from stages.schedule.feed import Feed
from tests.unit.schedule.stand_ins import delivery, ticket

if TYPE_CHECKING:
    from broker.work_queue import WorkQueue


class Queue:
    """A work queue in memory: once started it hands out what it was made with, then waits until it is ended."""

    def __init__(self, *sequences: int) -> None:
        self.started = asyncio.Event()
        self.abandoned = False
        self._waiting = [[delivery(ticket(f"r{number}"), number)] for number in sequences]
        self._ended = asyncio.Event()

    async def start(self) -> None:
        self.started.set()

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        await asyncio.wait(
            [asyncio.ensure_future(one.wait()) for one in (self.started, self._ended)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        while self._waiting and not self._ended.is_set():
            yield self._waiting.pop(0)
        await self._ended.wait()

    async def abandon(self) -> None:
        self.abandoned = True
        self._ended.set()

    async def stop(self) -> list[Delivery]:
        self._ended.set()
        return []


async def test_what_was_read_after_a_long_pause_is_not_handed_out() -> None:
    """The look before a batch finds the pause: that batch and the queue are given up, the new queue goes on."""
    first, second = Queue(1, 2, 3), Queue(4)
    queues = iter((first, second))
    pauses = iter((False, True, False))

    def look() -> None:
        if next(pauses):
            feed.forget()

    feed = Feed(lambda: cast("WorkQueue", next(queues)), look, asyncio.create_task)
    await feed.start()
    seen: list[int] = []
    async for batch in feed.batches():
        seen.extend(one.sequence for one in batch)
        if 4 in seen:
            await feed.stop()

    assert seen == [1, 4]
    assert first.abandoned
    assert second.started.is_set()


async def test_no_new_queue_starts_while_it_stops() -> None:
    """A stop during a pause stays a stop."""
    first, second = Queue(), Queue()
    queues = iter((first, second))
    feed = Feed(lambda: cast("WorkQueue", next(queues)), lambda: None, asyncio.create_task)
    await feed.start()
    feed.forget()
    await feed.stop()
    await asyncio.sleep(0)

    assert [batch async for batch in feed.batches()] == []
    assert not second.started.is_set()
