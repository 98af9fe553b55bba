"""Appending to one partition."""

import asyncio

import pytest

from broker.connection import Unavailable
from schemas.journal import Open, Released
from stages.schedule.journal_lane import ENTRIES_PER_MESSAGE, FIRST_BACK_OFF_S, SLOW_S, JournalLane
from tests.unit.schedule.stand_ins import MemoryJournal


def opens(*keys: str) -> list[Open]:
    return [Open(key=key, choice=0, model="m", session="s", sequence=1, ack="a", fresh=True) for key in keys]


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_what_comes_while_one_message_is_in_flight_goes_together_in_the_next() -> None:
    """One message in flight a partition, and every submission gets the sequence of the message that holds it."""
    journal = MemoryJournal()
    lane = JournalLane(journal, 0, "me")

    first = asyncio.create_task(lane.submit(opens("a")))
    await asyncio.sleep(0)
    rest = [asyncio.create_task(lane.submit(opens(key))) for key in ("b", "c")]
    assert await asyncio.gather(first, *rest) == [1, 2, 2]
    assert [[entry.key for entry in message.opens] for _, message in journal.messages] == [["a"], ["b", "c"]]
    assert journal.messages[0][1].origin == "me"


async def test_messages_are_bounded() -> None:
    """A backlog becomes several messages, in order."""
    journal = MemoryJournal()
    lane = JournalLane(journal, 0, "me")
    half = ENTRIES_PER_MESSAGE // 2 + 1

    await asyncio.gather(*(lane.submit(opens(*(["k"] * half))) for _ in range(4)))
    assert [len(message.opens) for _, message in journal.messages] == [half] * 4


async def test_a_refused_message_fails_all_in_it_and_closes_the_lane_for_a_growing_while() -> None:
    """A full partition is not asked again and again; success opens it."""
    journal = MemoryJournal()
    lane = JournalLane(journal, 0, "me")
    journal.fail[0] = Unavailable("full")

    with pytest.raises(Unavailable):
        await lane.submit(opens("a"))
    assert not lane.takes(now())
    assert lane.takes(now() + FIRST_BACK_OFF_S)
    with pytest.raises(Unavailable):
        await lane.submit(opens("a"))
    assert not lane.takes(now() + FIRST_BACK_OFF_S)
    assert lane.takes(now() + 2 * FIRST_BACK_OFF_S)
    journal.fail.clear()
    assert await lane.submit(opens("a")) == 1
    assert lane.takes(now() + 2 * FIRST_BACK_OFF_S)


async def test_a_slow_partition_takes_nothing_more_until_it_answers() -> None:
    """Tickets of other partitions get the workers meanwhile."""
    journal = MemoryJournal()
    lane = JournalLane(journal, 0, "me")
    journal.gate[0] = asyncio.Event()

    waiting = asyncio.create_task(lane.submit(opens("a")))
    await asyncio.sleep(0)
    assert lane.takes(now())
    assert not lane.takes(now() + SLOW_S + 0.01)
    journal.gate[0].set()
    await waiting
    assert lane.takes(now() + SLOW_S + 0.01)


async def test_a_bug_reaches_whoever_waits() -> None:
    """An unexpected error is raised at the submitter, it does not leave it waiting for ever."""

    class Broken(MemoryJournal):
        async def append(self, *_: object, **__: object) -> int:
            raise RuntimeError("bug")

    with pytest.raises(RuntimeError):
        await asyncio.wait_for(JournalLane(Broken(), 0, "me").submit(opens("a")), 1)


async def test_what_silent_workers_had_goes_with_the_rest() -> None:
    """Hand-backs wait for nothing else and hold up nothing else: they are entries as any other."""
    journal = MemoryJournal()
    lane = JournalLane(journal, 0, "me")
    released = Released("t.a", 0, 3, died=True, worker="w")

    first = asyncio.create_task(lane.submit(opens("a")))
    await asyncio.sleep(0)
    rest = [asyncio.create_task(lane.submit(opens("b"))), asyncio.create_task(lane.submit(released=[released]))]
    assert await asyncio.gather(first, *rest) == [1, 2, 2]
    assert journal.released == [released]
