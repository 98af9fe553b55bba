"""The life of a ticket against a real broker."""

import asyncio
from base64 import b64decode

import msgspec

from broker import subjects
from broker.cancels import put_cancel
from broker.jetstream_api import call
from broker.journal import JournalWriter
from broker.publisher import Full, Publisher
from broker.registry import Registry
from broker.subjects import partition_of
from broker.topology import TopologySettings, ensure_schedule_consumer
from broker.work_queue import WorkQueue
from schemas.codec import decode, pack_ids
from schemas.control import Cancel, DeadLetter
from schemas.journal import JournalMessage, Open, OpenReply
from tests.integration.schedule.conftest import CARD, World
from tests.integration.schedule.peers import MODEL, never, until


async def test_a_fresh_ticket_is_opened_and_granted_and_then_its_workers(world: World) -> None:
    """The attempt is the journal sequence of the stored open; the ticket stays in TICKETS until its owner acks it."""
    owner = await world.owner()
    worker = await world.worker("w1", slots=2)
    await world.scheduler()
    sequence = await world.submit("a")

    await until(lambda: sequence in worker.held and bool(owner.opens))
    ((attempt, entry),) = owner.opens
    item = worker.held[sequence]
    assert (entry.key, entry.choice, entry.model, entry.session) == ("t.a", 0, MODEL, "s")
    assert (entry.sequence, entry.fresh, entry.worker) == (sequence, True, "w1")
    assert (item.attempt, item.ack, item.ids) == (attempt, entry.ack, b"")
    assert item.schedule.queued >= 0
    assert await world.tickets_left() == 1


async def test_a_burst_becomes_few_grants(world: World) -> None:
    """All grants of one tick for one worker travel as one message."""
    worker = await world.worker("w1", slots=64)
    scheduler = await world.scheduler(tick_ms=20)
    await asyncio.sleep(0.6)
    await asyncio.gather(*(world.submit(f"r{number}") for number in range(64)))

    await until(lambda: len(worker.held) == 64)
    assert len(worker.grants) <= 16
    assert {grant.scheduler for grant in worker.grants} == {scheduler.context.instance}


async def test_a_redelivered_ticket_goes_on_where_the_owner_says(world: World) -> None:
    """Delivered before: the owner's ids travel in the grant, and a fresh ticket does not wait for it."""
    owner = await world.owner()
    worker = await world.worker("w1", slots=4)
    old = await world.submit("old")
    await deliver_once(world)
    await world.scheduler()
    new = await world.submit("new")
    await until(lambda: new in worker.held)
    assert old not in worker.held

    owner.answer = lambda _: OpenReply(0, ids=pack_ids([7, 8, 9]))
    await until(lambda: old in worker.held, 6)
    item = worker.held[old]
    assert item.ids == pack_ids([7, 8, 9])
    opens = owner.opens_of(old)
    assert [(one.fresh, one.replaces) for one in opens] == [(False, False), (False, True)], "unanswered for 2 s"
    assert item.attempt == owner.attempts_of(old)[-1]
    assert item.ack.split(".")[4] == "2" or item.ack.split(".")[6] == "2", "the ack subject of this delivery"


async def test_a_ticket_whose_answer_has_ended_is_acked_by_the_owner_and_granted_to_nobody(world: World) -> None:
    """The scheduler lets go; it never acks."""
    owner = await world.owner()
    owner.answer = lambda _: OpenReply(0, ended=True)
    worker = await world.worker("w1", slots=4)
    await world.submit("a")
    await deliver_once(world)
    scheduler = await world.scheduler()

    await until(lambda: bool(owner.opens))
    await asyncio.sleep(0.2)
    assert await world.tickets_left() == 0
    assert worker.grants == []
    await scheduler.stop()


async def test_held_tickets_stay_alive_and_the_handover_has_no_gap(world: World) -> None:
    """Longer than the ack wait in the window, then longer than the ack wait at a worker: never delivered again.

    A second scheduler pulls all the while: without somebody who pulls a redelivery would not show.
    """
    await world.make_streams(TopologySettings(partitions=3, ticket_ack_wait_s=2.0))
    owner = await world.owner()
    await world.scheduler()
    await world.scheduler()
    sequences = [await world.submit(f"r{number}") for number in range(6)]
    await asyncio.sleep(2.5)
    worker = await world.worker("w1", slots=6)
    await until(lambda: len(worker.held) == 6)

    await never(lambda: bool(owner.opened_more_than_once), 2.5)
    assert sorted(worker.held) == sequences
    assert all(one.fresh for _, one in owner.opens)


async def test_a_cancelled_ticket_ends_while_it_waits(world: World) -> None:
    """Put in the bucket: the end entry names the ack subject, the owner acknowledges, nothing is left."""
    owner = await world.owner()
    await world.scheduler()
    sequence = await world.submit("a")
    other = await world.submit("b")
    await asyncio.sleep(0.3)
    await put_cancel(world.connection, "t.a", Cancel(session="s"))

    await until(lambda: bool(owner.ends))
    (end,) = owner.ends
    assert (end.key, end.choice, end.session, end.fault.code) == ("t.a", 0, "s", "cancelled")
    worker = await world.worker("w1", slots=4)
    await until(lambda: other in worker.held)
    assert sequence not in worker.held
    assert await world.tickets_left() == 1


async def test_a_ticket_past_its_deadline_ends_without_a_worker(world: World) -> None:
    """It waited too long: a `deadline` fault, acknowledged by the owner, never granted."""
    owner = await world.owner()
    await world.scheduler()
    await world.submit("a", deadline_ms=400)

    await until(lambda: bool(owner.ends))
    assert [(end.key, end.fault.code) for end in owner.ends] == [("t.a", "deadline")]
    worker = await world.worker("w1", slots=4)
    await never(lambda: bool(worker.grants), 0.3)
    assert await world.tickets_left() == 0


async def test_bytes_that_are_no_ticket_go_to_the_dead(world: World) -> None:
    """Nobody could answer them: buried as they came, with the reason, and out of the queue; metrics count it."""
    registry = (await world.scheduler()).context.telemetry.registry
    subject = subjects.ticket(MODEL, "t")
    await Publisher(world.connection).publish(subject, b"\xc1nonsense", message_id="odd")
    worker = await world.worker("w1", slots=4)
    sequence = await world.submit("good")

    await until(lambda: sequence in worker.held)
    await asyncio.sleep(0.2)
    stored = await call(world.connection, f"STREAM.MSG.GET.{subjects.DEAD}", {"last_by_subj": subjects.dead(MODEL)})
    letter = decode(DeadLetter, b64decode(stored["message"]["data"]))
    assert (letter.subject, letter.payload) == (subject, b"\xc1nonsense")
    assert letter.reason
    assert registry.get_sample_value("headrace_dead_letters_total", {"stage": "schedule", "model": MODEL}) == 1
    assert await world.tickets_left() == 1


async def test_a_full_journal_holds_up_its_own_partition_only(world: World) -> None:
    """Tickets of the full partition stay in the window, others go; when the owner has purged, they go too."""
    await world.make_streams(TopologySettings(partitions=3, journal_max_bytes=64 * 1024))
    full = partition_of("t.stuck", 3)
    await fill(world, full)
    worker = await world.worker("w1", slots=8)
    await world.scheduler()
    stuck = await world.submit("stuck")
    names = [f"r{number}" for number in range(20) if partition_of(f"t.r{number}", 3) != full]
    others = [await world.submit(name) for name in names[:4]]

    await until(lambda: set(others) <= set(worker.held))
    assert stuck not in worker.held
    await world.owner()
    await until(lambda: stuck in worker.held)


async def test_a_model_that_comes_later_is_served(world: World) -> None:
    """Its tickets may even be stored before: the consumer is made when the card appears."""
    await world.scheduler()
    worker = await world.worker("w1", slots=1, model="late")
    sequence = await world.submit("a", model="late")
    await never(lambda: bool(worker.grants), 0.3)
    await Registry(world.connection).publish_model(msgspec.structs.replace(CARD, slug="late", name="late"), {})

    await until(lambda: sequence in worker.held)


async def deliver_once(world: World) -> None:
    """Somebody pulled every ticket before and gave it back: the next delivery is the second."""
    await ensure_schedule_consumer(world.connection, MODEL)
    queue = WorkQueue(
        world.connection,
        subjects.TICKETS,
        subjects.schedule_consumer(MODEL),
        slots=16,
        ack_wait_s=world.topology.ticket_ack_wait_s,
    )
    await queue.start()
    async for batch in queue.batches():
        await queue.stop()
        for delivery in batch:
            await queue.nak(delivery, 0)
    await queue.abandon()


async def fill(world: World, partition: int) -> None:
    """Appends to a partition until it takes nothing more, not even an open."""
    writer = JournalWriter(world.connection)
    filler = Open(key="t.filler", choice=0, model=MODEL, session="s", sequence=10**6, ack="x", fresh=True)
    for count in (100, 1):
        while True:
            try:
                await writer.append(partition, JournalMessage(origin="test", opens=[filler] * count))
            except Full:
                break
