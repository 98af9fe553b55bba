"""A partition that is full or slow holds up its own tickets, and nobody else's."""

import asyncio
from collections.abc import Iterator

from broker.connection import Unavailable
from broker.subjects import partition_of
from tests.unit.schedule.bench import PARTITIONS, bench
from tests.unit.schedule.stand_ins import ticket


def of_partition(partition: int) -> str:
    """A request id whose key falls into that partition."""
    return next(ids_of_partition(partition))


def ids_of_partition(partition: int) -> Iterator[str]:
    return (f"r{n}" for n in range(100) if partition_of(f"t.r{n}", PARTITIONS) == partition)


async def test_a_partition_that_refuses_keeps_its_own_tickets_and_no_others() -> None:
    """Full journal: those tickets stay, the others go; afterwards they go too, their open replacing nothing granted."""
    one = bench(w1=4)
    one.journal.fail[0] = Unavailable("full")
    one.pull(ticket(of_partition(0)), 1)
    one.pull(ticket(of_partition(1)), 2)
    await one.tick()
    await one.tick()
    assert [item.sequence for item in one.workers.granted] == [2]
    assert one.journal.calls == 2, "the full partition is left alone for a moment"

    one.journal.fail.clear()
    one.later += 5
    one.beat()
    await one.tick()
    assert [item.sequence for item in one.workers.granted] == [2, 1]
    assert one.journal.opens[-1].replaces


async def test_a_partition_that_does_not_answer_holds_up_no_other() -> None:
    """The grant of the others goes after a moment; the slow one follows when its open is stored."""
    one = bench(w1=4)
    gate = one.journal.gate[0] = asyncio.Event()
    others = ids_of_partition(1)
    one.pull(ticket(of_partition(0)), 1)
    one.pull(ticket(next(others)), 2)
    await one.tick()
    assert [item.sequence for item in one.workers.granted] == [2]

    one.pull(ticket(next(others)), 3)
    await one.tick()
    assert [item.sequence for item in one.workers.granted] == [2, 3]
    one.journal.gate.clear()
    gate.set()
    await one.tick()
    assert {item.sequence for item in one.workers.granted} == {1, 2, 3}
