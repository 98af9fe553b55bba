"""The outboxes reach the journals whatever these answer, and the worker knows when they do not."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from broker.connection import BrokerError, TooLarge, Unavailable
from schemas.codec import encode
from schemas.journal import JournalMessage, WorkerTimes
from stages.inference.journal_sender import JournalSender
from stages.inference.outbox import Stream


class StandInJournals:
    """Journals in memory. `faults` are raised first, one an append; `gate` holds appends back."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, JournalMessage]] = []
        self.faults: list[BrokerError] = []
        self.largest = 10_000_000
        self.gate = asyncio.Event()
        self.gate.set()
        self.appending = 0
        self.most_at_once = 0

    async def append(self, partition: int, message: JournalMessage, timeout_s: float = 5) -> int:
        self.appending += 1
        self.most_at_once = max(self.most_at_once, self.appending)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
            if self.faults:
                raise self.faults.pop(0)
            if len(encode(message)) > self.largest:
                raise TooLarge("too large")
            self.stored.append((partition, message))
            return len(self.stored)
        finally:
            self.appending -= 1


@contextlib.asynccontextmanager
async def sending(journals: StandInJournals, over: list[str], partitions: int = 2) -> AsyncGenerator[JournalSender]:
    sender = JournalSender(journals, "w", partitions, over.extend)
    task = asyncio.create_task(sender.run())
    yield sender
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def answer(sender: JournalSender, partition: int, name: str, ids: list[int]) -> None:
    box = sender.boxes[partition]
    box.open(name, Stream(name, 0, 1, 0))
    box.tokens(name, ids, None)
    box.finish(name, "length", None, WorkerTimes())


async def test_partitions_do_not_wait_for_each_other() -> None:
    """A message of every partition is in flight at once, one of each at most."""
    journals, over = StandInJournals(), list[str]()
    journals.gate.clear()
    async with sending(journals, over) as sender:
        for number in range(6):
            answer(sender, number % 2, f"a{number}", [number])
            await asyncio.sleep(0.002)
        assert journals.most_at_once == 2
        journals.gate.set()
        assert await sender.drained(1)
    assert sorted(over) == [f"a{number}" for number in range(6)]
    assert len(journals.stored) == 4, "what came while the first was in flight went in one message"


@pytest.mark.parametrize("fault", [Unavailable("gone"), BrokerError("maximum messages exceeded")])
async def test_keeps_what_a_journal_does_not_take(fault: BrokerError) -> None:
    """While a journal fails, the worker is blocked and nothing counts as over; then all of it arrives."""
    journals, over = StandInJournals(), list[str]()
    journals.faults = [fault, fault]
    async with sending(journals, over) as sender:
        answer(sender, 0, "a", [1, 2])
        await asyncio.sleep(0.02)
        assert sender.blocked
        assert over == []
        assert await sender.drained(2)
        assert not sender.blocked
    assert over == ["a"]
    assert [one.ids for one in journals.stored[0][1].tokens] == [[1, 2]]


async def test_a_small_broker_gets_small_messages() -> None:
    """What is too large for the broker goes in parts."""
    journals, over = StandInJournals(), list[str]()
    journals.largest = 20_000
    async with sending(journals, over) as sender:
        for number in range(8):
            answer(sender, 0, f"a{number}", list(range(100_000, 102_000)))
        assert await sender.drained(5)
    assert sorted(over) == [f"a{number}" for number in range(8)]
    assert len(journals.stored) > 3


async def test_drained_gives_up() -> None:
    """A journal that takes nothing does not hold up the end for ever."""
    journals = StandInJournals()
    journals.gate.clear()
    async with sending(journals, []) as sender:
        assert await sender.drained(1), "nothing waits"
        answer(sender, 1, "a", [1])
        assert not await sender.drained(0.05)


async def test_what_was_forgotten_blocks_nothing() -> None:
    """A journal that failed and for which nothing is left to send: the worker may take work again.

    Nothing else would ever ask that journal: blocked, a worker gets no grant that could fill the outbox again.
    """
    journals, over = StandInJournals(), list[str]()
    journals.faults = [Unavailable("gone")]
    async with sending(journals, over) as sender:
        answer(sender, 0, "a", [1, 2])
        await asyncio.sleep(0.02)
        assert sender.blocked
        sender.boxes[0].discard("a")
        async with asyncio.timeout(5):
            while sender.blocked:  # noqa: ASYNC110 — it tells nobody
                await asyncio.sleep(0.01)
        answer(sender, 0, "b", [3])
        assert await sender.drained(2)
    assert over == ["b"]
