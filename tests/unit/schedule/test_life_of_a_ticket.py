"""From the pull to the grant, or to an end before: what is written, what is granted, what is let go."""

import asyncio

import pytest

from broker.connection import Unavailable
from schemas.codec import WireError, pack_ids
from stages.schedule.held import Phase
from tests.unit.schedule.bench import Bench, bench
from tests.unit.schedule.stand_ins import MemoryWorkers, delivery, ticket


async def test_a_fresh_ticket_is_opened_then_granted_then_let_go() -> None:
    """The attempt is the sequence of its stored open, which names worker, ticket and ack subject."""
    one = bench(w1=4)
    one.pull(ticket("a"), 7, age_s=0.5)
    await one.tick()

    (entry,) = one.journal.opens
    assert (entry.key, entry.sequence, entry.ack, entry.fresh, entry.worker, entry.reply, entry.replaces) == (
        *("t.a", 7, "$JS.ACK.7.1", True, "w1", ""),
        False,
    )
    (item,) = one.workers.granted
    assert (item.attempt, item.sequence, item.ack, item.ids) == (1, 7, "$JS.ACK.7.1", b"")
    assert item.schedule.queued == pytest.approx(0.5, abs=0.2)
    assert one.queue.let_go_of == [7]
    assert len(one.scheduler.window) == 0
    assert 7 in one.scheduler.granted


async def test_a_burst_is_one_message_a_partition_and_one_grant_a_worker() -> None:
    """All tickets of a tick travel together."""
    one = bench(w1=10, w2=10)
    for number in range(20):
        one.pull(ticket(f"r{number}"), number)
    await one.tick()

    assert sorted(partition for partition, _ in one.journal.messages) == [0, 1]
    assert sorted(worker for worker, _ in one.workers.grants) == ["w1", "w2"]
    assert len(one.workers.granted) == 20


async def test_without_free_slots_nothing_is_opened() -> None:
    """What waits, waits here: no open is written and no worker asked before a credit is there."""
    one = bench(w1=1)
    one.pull(ticket("a"), 1)
    one.pull(ticket("b"), 2)
    await one.tick()
    await one.tick()

    assert [item.sequence for item in one.workers.granted] == [1]
    assert [entry.sequence for entry in one.journal.opens] == [1]
    one.workers.slots["w1"] = 1
    one.beat(held=[1])
    await one.tick()
    assert [item.sequence for item in one.workers.granted] == [1, 2]


async def test_a_refused_ticket_keeps_its_attempt_for_the_next_grant() -> None:
    """Another scheduler was faster: no second open, the next worker gets the same attempt."""
    one = bench(w1=2)
    one.workers.slots["w1"] = 0  # since that heartbeat
    one.pull(ticket("a"), 1)
    await one.tick()
    assert one.queue.let_go_of == []

    one.workers.slots["w1"] = 1
    one.beat()
    await one.tick()
    assert [item.attempt for item in one.workers.granted] == [1, 1]
    assert len(one.journal.opens) == 1
    assert one.queue.let_go_of == [1]


async def test_after_a_lost_reply_the_owner_is_asked() -> None:
    """The grant may run: the next open is not fresh, and goes on with the ids that the owner names."""
    one = bench(w1=2)
    one.workers.silent = {"w1"}
    one.pull(ticket("a"), 1)
    await one.tick()
    await one.tick()
    assert [(entry.fresh, entry.replaces) for entry in one.journal.opens] == [(True, False), (False, False)]
    assert one.queue.let_go_of == []

    one.workers.silent = set()
    one.answer(1, pack_ids([5, 6]))
    one.beat()
    await one.tick()
    assert [(item.attempt, item.ids) for item in one.workers.granted] == [(1, b""), (2, pack_ids([5, 6]))]
    assert one.queue.let_go_of == [1]


async def test_a_redelivered_ticket_waits_for_the_owner_and_holds_up_no_fresh_one() -> None:
    """Its open asks for an answer; only that brings attempt and ids."""
    one = bench(w1=4)
    one.pull(ticket("old"), 1, deliveries=2)
    one.pull(ticket("new"), 2)
    await one.tick()
    asked = next(entry for entry in one.journal.opens if entry.sequence == 1)
    assert (asked.fresh, asked.worker, asked.reply) == (False, "", "inbox.1")
    assert [item.sequence for item in one.workers.granted] == [2]

    one.answer(1, pack_ids([9]))
    await one.tick()
    assert [(item.sequence, item.ids) for item in one.workers.granted][1:] == [(1, pack_ids([9]))]


async def test_a_ticket_whose_answer_has_ended_is_let_go_without_a_word() -> None:
    """The owner acknowledges it."""
    one = bench(w1=4)
    one.pull(ticket("a"), 1, deliveries=2)
    await one.tick()
    one.answer(1, ended=True)
    await one.tick()

    assert one.queue.let_go_of == [1]
    assert one.workers.granted == []
    assert one.journal.ends == []


async def test_an_unanswered_open_is_written_again_and_says_that_it_replaces_one() -> None:
    """Owner gone for a moment: 2 s, then a new open, then twice as long; only the last one's answer counts."""
    one = bench(w1=4)
    one.pull(ticket("a"), 1, deliveries=2)
    await one.tick()
    first = one.journal.opens[0]

    for wait_s, opens in ((1.9, 1), (0.2, 2), (3.8, 2), (0.3, 3)):
        one.later += wait_s
        await one.tick()
        assert len(one.journal.opens) == opens, f"{wait_s} s later"
    assert [entry.replaces for entry in one.journal.opens] == [False, True, True]
    (held,) = one.scheduler.window.of_key("t.a")
    assert one.scheduler.window.answer_to(first.reply) is None
    assert held.phase is Phase.ASKED


async def test_while_an_open_is_being_stored_no_other_is_written() -> None:
    """The patience with the owner begins when the open is stored, however long that takes."""
    one = bench(w1=4)
    one.pull(ticket("a"), 1, deliveries=2)
    await one.tick()
    gate = one.journal.gate[0] = one.journal.gate[1] = asyncio.Event()
    one.later += 2.1
    for _ in range(3):
        one.begin_tick()
        await asyncio.sleep(0)
    one.journal.gate.clear()
    gate.set()
    await one.tick()

    assert len(one.journal.opens) == 2


async def test_what_is_known_to_run_is_not_fresh_whatever_the_delivery_count_says() -> None:
    """A broker killed right after a fetch hands tickets out again with count 1."""
    one = bench(w1=4)
    one.pull(ticket("a"), 1)
    await one.tick()
    one.pull(ticket("a"), 1, deliveries=1)
    await one.tick()

    assert [entry.fresh for entry in one.journal.opens] == [True, False]
    assert one.scheduler.granted.take_back("w1") == []  # that delivery is void


async def test_what_has_to_run_alone_is_granted_alone() -> None:
    """The owner says how many attempts died: its worker hears it too, and gets nothing with it."""
    one = bench(w1=4)
    one.pull(ticket("a"), 1, deliveries=2)
    await one.tick()
    one.answer(1, pack_ids([5]), deaths=2)
    one.pull(ticket("b"), 2)
    one.begin_tick()
    one.begin_tick()
    await one.tick()
    await one.tick()

    assert [[(item.sequence, item.deaths) for item in grant.items] for _, grant in one.workers.grants] == [
        [(1, 2)],
        [(2, 0)],
    ]
    assert one.scheduler.workers.candidates(one.now)[0].slots == 2, "the whole worker is free again"


async def test_after_a_long_pause_nothing_is_held_and_nothing_under_way_counts() -> None:
    """Forgotten without ACK or NAK; a reply that is still to come changes nothing."""
    one = bench(w1=4)
    one.pull(ticket("a"), 1)
    one.workers.before_reply = one.scheduler.forget
    await one.tick()

    assert one.queue.let_go_of == [], "the queue forgets by itself, and may hold the ticket anew"
    assert len(one.scheduler.window) == 0
    assert len(one.scheduler.granted) == 0


async def test_credits_come_back_whatever_becomes_of_a_placement() -> None:
    """Refused, unanswered, not stored, taken: no slot of a worker stays reserved for nothing."""
    one = bench(w1=3)
    one.pull(ticket("taken"), 1)
    await one.tick()
    one.workers.silent = {"w1"}
    one.pull(ticket("unanswered"), 2)
    await one.tick()
    one.workers.silent = set()
    one.journal.fail = {0: Unavailable("away"), 1: Unavailable("away")}
    one.pull(ticket("unstored"), 3)
    one.beat()
    await one.tick()
    one.workers.slots["w1"] = 7
    one.beat()

    assert [each.slots for each in one.scheduler.workers.candidates(one.now)] == [7]


def test_bytes_that_are_no_ticket_are_refused() -> None:
    """The caller buries them; the window stays as it is."""
    one = Bench(MemoryWorkers({}))
    with pytest.raises(WireError):
        one.scheduler.pulled(delivery(b"\x81\xa1v\x63", 1), 0.0)
    assert len(one.scheduler.window) == 0
