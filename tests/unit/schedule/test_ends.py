"""What ends a ticket before any worker has it: deadlines and cancels."""

import asyncio

import pytest

from broker.connection import Unavailable
from tests.unit.schedule.bench import bench
from tests.unit.schedule.stand_ins import ticket


@pytest.mark.parametrize("deliveries", [1, 2])
async def test_a_ticket_past_its_deadline_ends_and_is_never_granted(deliveries: int) -> None:
    """A terminal fault by its end entry, whose ack subject lets the owner acknowledge it; no GPU time."""
    one = bench(w1=4)
    one.pull(ticket("a", deadline_ms=1000), 1, deliveries=deliveries, age_s=1.5)
    await one.tick()

    (end,) = one.journal.ends
    assert (end.key, end.fault.code, end.ack, end.session, end.attempt) == (
        *("t.a", "deadline"),
        *(f"$JS.ACK.1.{deliveries}", "s", 0),
    )
    assert one.workers.granted == []
    assert one.queue.let_go_of == [1]


async def test_the_deadline_passes_while_it_waits() -> None:
    """No worker came in time."""
    one = bench()
    one.pull(ticket("a", deadline_ms=1000), 1)
    await one.tick()
    assert one.journal.ends == []
    one.later += 1.1
    await one.tick()
    assert [end.fault.code for end in one.journal.ends] == ["deadline"]


async def test_clocks_are_looked_at_even_if_something_is_granted_all_the_time() -> None:
    """Deadlines are not looked at with every tick, but often enough: within a tenth of a second."""
    one = bench()
    one.pull(ticket("a", deadline_ms=1000), 1)
    await one.tick()
    one.later += 0.999
    for _ in range(5):
        await one.tick()
        one.later += 0.02
    await one.tick()
    assert [end.fault.code for end in one.journal.ends] == ["deadline"]


async def test_a_cancelled_request_ends_in_every_choice() -> None:
    """Whether the cancel comes before the ticket or after it."""
    one = bench()
    one.cancelled.add("t.early")
    one.pull(ticket("early"), 1)
    for choice in range(2):
        one.pull(ticket("late", choice=choice), 2 + choice)
    one.pull(ticket("other"), 9)
    assert one.scheduler.cancel("t.late")
    assert not one.scheduler.cancel("t.nobody")
    await one.tick()

    assert sorted((end.key, end.choice, end.fault.code) for end in one.journal.ends) == [
        ("t.early", 0, "cancelled"),
        ("t.late", 0, "cancelled"),
        ("t.late", 1, "cancelled"),
    ]
    assert sorted(one.queue.let_go_of) == [1, 2, 3]


async def test_a_cancel_between_open_and_grant_ends_the_ticket() -> None:
    """The grant is not sent any more."""
    one = bench(w1=4)
    gate = one.journal.gate[0] = one.journal.gate[1] = asyncio.Event()
    one.pull(ticket("a"), 1)
    one.begin_tick()
    await asyncio.sleep(0)
    one.scheduler.cancel("t.a")
    one.journal.gate.clear()
    gate.set()
    await one.tick()
    await one.tick()

    assert one.workers.grants == []
    assert [end.fault.code for end in one.journal.ends] == ["cancelled"]
    assert one.scheduler.workers.candidates(one.now)[0].slots == 4, "its room is given back"


async def test_an_end_that_cannot_be_stored_is_tried_again() -> None:
    """The ticket is not let go before its end is stored."""
    one = bench()
    one.journal.fail = {0: Unavailable("away"), 1: Unavailable("away")}
    one.pull(ticket("a", deadline_ms=1), 1, age_s=1)
    await one.tick()
    assert one.queue.let_go_of == []

    one.journal.fail.clear()
    one.later += 1
    await one.tick()
    assert len(one.journal.ends) == 1
    assert one.queue.let_go_of == [1]
