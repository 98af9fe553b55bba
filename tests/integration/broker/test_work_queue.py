"""The work queue as stages use it: slots, signs of life, settling.

Redelivery only shows when somebody pulls: those tests have a second puller.
"""

import asyncio
from datetime import UTC, datetime

import pytest

from broker import subjects
from broker.connection import Connection
from broker.jetstream_api import call
from broker.publisher import Publisher
from broker.topology import depths, ensure_schedule_consumer
from broker.work_queue import WorkQueue, confirm_ack, nak, ticket_by_sequence
from tests.integration.broker.handling import (
    ACK_WAIT_S,
    AT_ONCE_S,
    SUBJECT,
    Handler,
    ack_pending,
    first_of,
    handling,
    publish,
)

pytestmark = pytest.mark.usefixtures("topology")


async def test_a_delivery_tells_everything_about_its_message(connection: Connection) -> None:
    """Data, subject, place in the stream, the broker's time and the headers reach the stage."""
    async with handling(connection) as handler:
        before = (await call(connection, "STREAM.INFO.REQUESTS"))["ts"]
        sequence = await Publisher(connection).publish(
            SUBJECT, b"body", message_id="acme.7", content_type="application/json", trace="00-aa-bb-01"
        )
        [delivery] = await handler.wait_for(1)
        assert (delivery.data, delivery.subject) == (b"body", SUBJECT)
        assert (delivery.sequence, delivery.deliveries) == (sequence, 1)
        assert (delivery.message_id, delivery.content_type) == ("acme.7", "application/json")
        assert delivery.trace == "00-aa-bb-01"
        assert before[:10] == _day(delivery.stored_at)
        await handler.queue.ack(delivery)
        assert (await depths(connection)).streams["REQUESTS"].messages == 0


async def test_a_waiting_puller_has_the_message_at_once(connection: Connection, other: Connection) -> None:
    """Pulls are open before the message comes: the median of publish to handler is a few milliseconds at the most."""
    async with handling(other) as handler:
        await handler.queue.ack(await first_of(connection, handler))
        times: list[float] = []
        for number in range(1, 40):
            sent = asyncio.get_running_loop().time()
            await Publisher(connection).publish(SUBJECT, b"x")
            await handler.wait_for(number + 1)
            times.append(handler.got[number][1] - sent)
            await handler.queue.ack(handler.got[number][0])
        assert sorted(times)[len(times) // 2] < 0.01


async def test_never_more_than_the_slots_are_held(connection: Connection) -> None:
    """D9, D19: of ten messages three are handed out for three slots, also at the server; each settled one frees one."""
    await publish(connection, 10)
    async with handling(connection, slots=3) as handler:
        await handler.wait_for(3)
        await asyncio.sleep(0.2)
        assert len(handler.got) == 3
        assert await ack_pending(connection) == 3
        await handler.queue.ack(handler.got[0][0])
        await handler.queue.nak(handler.got[1][0], delay_s=60)
        await handler.wait_for(5, AT_ONCE_S)
        await asyncio.sleep(0.1)
        assert len(handler.got) == 5
        assert len(handler.queue.held) == 3
        assert await ack_pending(connection) == 4  # the delayed one counts there, and blocks nobody


async def test_acks_of_a_batch_run_side_by_side(connection: Connection) -> None:
    """D20: every message of a batch is settled by itself and all at once; the handler need not wait for them."""
    await publish(connection, 16)
    async with handling(connection, slots=16) as handler:
        deliveries = await handler.wait_for(16)
        async with asyncio.timeout(AT_ONCE_S):
            await asyncio.gather(*(handler.queue.ack(delivery) for delivery in deliveries))
        assert (await depths(connection)).streams["REQUESTS"].messages == 0


async def test_once_the_last_ack_of_a_batch_is_confirmed_all_took_effect(connection: Connection) -> None:
    """One round trip for a hundred: none of them is in the stream when the first caller hears of it."""
    for number in range(100):
        await Publisher(connection).publish(subjects.request(f"t{number % 10}", "m"), b"x")
    queue = WorkQueue(connection, "REQUESTS", "preprocess", slots=512, ack_wait_s=ACK_WAIT_S, gather_acks_s=0.05)
    await queue.start()
    handler = Handler(queue)
    deliveries = await handler.wait_for(100)
    acks = [asyncio.create_task(queue.ack(delivery)) for delivery in deliveries]
    await asyncio.wait(acks, return_when=asyncio.FIRST_COMPLETED)
    last = [ack for ack in acks if not ack.done()]
    left = (await depths(connection)).streams["REQUESTS"].messages
    assert left <= len(last)
    await asyncio.gather(*acks)
    assert (await depths(connection)).streams["REQUESTS"].messages == 0
    assert queue.held == []
    await queue.stop()
    await handler.task


async def test_what_was_given_back_is_called_for_or_put_off(connection: Connection) -> None:
    """By the ack subject of the delivery that was given back, as often as one likes, as long as it is away."""
    async with handling(connection) as handler:
        await publish(connection, 2)
        first, second = await handler.wait_for(2)
        for each in (first, second):
            await handler.queue.nak(each, delay_s=0.6)
        await handler.queue.again(first.ack_subject, 0.0)
        await handler.queue.again(second.ack_subject, 60.0)
        await handler.wait_for(3, AT_ONCE_S)
        assert (handler.got[2][0].sequence, handler.got[2][0].deliveries) == (first.sequence, 2)
        await asyncio.sleep(1.0)
        assert len(handler.got) == 3
        await handler.queue.again(second.ack_subject, 0.0)
        await handler.wait_for(4, AT_ONCE_S)
        assert handler.got[3][0].sequence == second.sequence


async def test_what_is_held_is_not_redelivered(connection: Connection, other: Connection) -> None:
    """D2, D10: held for two and a half ack waits with another puller waiting, a message stays with its holder."""
    async with handling(connection) as holder:
        await publish(connection, 3)
        await holder.wait_for(3)
        async with handling(other) as waiting:
            await asyncio.sleep(2.5 * ACK_WAIT_S)
            assert waiting.got == []


async def test_what_no_handler_took_yet_is_kept_alive_too(connection: Connection, other: Connection) -> None:
    """A batch that waits behind a slow one does not go to somebody else meanwhile."""
    queue = WorkQueue(connection, "REQUESTS", "preprocess", slots=4, ack_wait_s=ACK_WAIT_S)
    await queue.start()
    await publish(connection, 2)
    async with asyncio.timeout(15):
        while await ack_pending(connection) < 2:  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0.02)
    async with handling(other) as waiting:
        await asyncio.sleep(1.5 * ACK_WAIT_S)
        assert waiting.got == []
        await queue.abandon()


async def test_letting_go_redelivers_at_the_ack_wait(connection: Connection, other: Connection) -> None:
    """D2, D10: without signs of life the message goes to the next puller after the ack wait, as its second delivery."""
    async with handling(connection, slots=1) as holder:
        await publish(connection, 1)
        [first] = await holder.wait_for(1)
        async with handling(other) as waiting:
            await holder.queue.stop()
            let_go = asyncio.get_running_loop().time()
            holder.queue.let_go(first)
            [second] = await waiting.wait_for(1)
            assert ACK_WAIT_S / 2 < waiting.got[0][1] - let_go < ACK_WAIT_S + 0.4
            assert (second.sequence, second.deliveries) == (first.sequence, 2)


async def test_an_ack_of_an_older_delivery_still_removes_the_message(connection: Connection, other: Connection) -> None:
    """D1: why only the owner may ack: the subject of an older delivery removes it, whoever holds it by then."""
    async with handling(connection, slots=1) as holder:
        await publish(connection, 1)
        [first] = await holder.wait_for(1)
        async with handling(other) as waiting:
            await nak(connection, first.ack_subject)
            await waiting.wait_for(1, AT_ONCE_S)
            await confirm_ack(connection, first.ack_subject)
            assert (await depths(connection)).streams["REQUESTS"].messages == 0


async def test_a_message_redelivered_to_its_holder_is_handed_out_once(connection: Connection) -> None:
    """Work that is in hand already does not come a second time, and its slot is not lost."""
    async with handling(connection, slots=2) as handler:
        await publish(connection, 1)
        [delivery] = await handler.wait_for(1)
        await nak(connection, delivery.ack_subject)
        await asyncio.sleep(0.2)
        assert len(handler.got) == 1
        await publish(connection, 1)
        await handler.wait_for(2, AT_ONCE_S)
        await handler.queue.ack(delivery)
        assert (await depths(connection)).streams["REQUESTS"].messages == 1


async def test_a_nak_with_delay_comes_back_after_it(connection: Connection) -> None:
    """D12: a message given back waits as long as was asked for, instead of burning deliveries."""
    async with handling(connection) as handler:
        await publish(connection, 1)
        [first] = await handler.wait_for(1)
        given_back = asyncio.get_running_loop().time()
        await handler.queue.nak(first, delay_s=0.4)
        await handler.wait_for(2)
        assert 0.35 < handler.got[1][1] - given_back < 0.8
        assert handler.got[1][0].deliveries == 2


async def test_tickets_are_read_by_their_sequence(connection: Connection) -> None:
    """The owner finds the ticket and the time it was stored; None once it was taken out."""
    sequence = await Publisher(connection).publish(subjects.ticket("m", "acme"), b"the ticket")
    await ensure_schedule_consumer(connection, "m")
    queue = WorkQueue(connection, subjects.TICKETS, "schedule_m", slots=1, ack_wait_s=1.5)
    await queue.start()
    handler = Handler(queue)
    [delivery] = await handler.wait_for(1)
    found = await ticket_by_sequence(connection, sequence)
    assert found is not None
    assert found[0] == b"the ticket"
    assert abs(found[1] - delivery.stored_at) < 1e-3
    await queue.ack(delivery)
    assert await ticket_by_sequence(connection, sequence) is None
    await queue.stop()
    await handler.task


def _day(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).date().isoformat()
