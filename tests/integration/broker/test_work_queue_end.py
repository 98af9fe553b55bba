"""How a work queue ends: stopped softly, abandoned, cancelled, or because its consumer is gone."""

import asyncio

import pytest

from broker import subjects
from broker.connection import Connection
from broker.jetstream_api import call
from broker.publisher import Publisher
from broker.topology import TopologyMismatch, depths, ensure_schedule_consumer
from broker.work_queue import WorkQueue
from tests.integration.broker.handling import (
    ACK_WAIT_S,
    AT_ONCE_S,
    SUBJECT,
    Handler,
    first_of,
    handling,
    publish,
)

pytestmark = pytest.mark.usefixtures("topology")


async def test_stopping_gives_back_what_was_not_handed_out(connection: Connection, other: Connection) -> None:
    """D4: what lies in the local queue at the stop goes to the next puller at once, not after the ack wait."""
    queue = WorkQueue(connection, "REQUESTS", "preprocess", slots=8, ack_wait_s=ACK_WAIT_S)
    await queue.start()
    await publish(connection, 5)
    async with asyncio.timeout(10):
        while len(queue._pull.waiting) < 5:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    async with handling(other, slots=8) as waiting:
        assert await queue.stop() == []
        await waiting.wait_for(5, AT_ONCE_S)


async def test_stopping_takes_nothing_with_it(connection: Connection, other: Connection) -> None:
    """D4, D8: a queue that starts and stops under a steady flow neither loses a message nor delays one."""
    sent: dict[int, float] = {}

    async def flow() -> None:
        for _ in range(300):
            sent[await Publisher(connection).publish(SUBJECT, b"x")] = asyncio.get_running_loop().time()
            await asyncio.sleep(0)

    async def come_and_go(seen: dict[int, float]) -> None:
        while not flowing.done():
            queue = WorkQueue(other, "REQUESTS", "preprocess", slots=8, ack_wait_s=ACK_WAIT_S)
            await queue.start()
            handler = Handler(queue)
            await asyncio.sleep(0.01)
            for delivery in await queue.stop():
                await queue.ack(delivery)
            await handler.task
            seen |= {delivery.sequence: at for delivery, at in handler.got}

    seen: dict[int, float] = {}
    async with handling(connection, slots=8) as steady:
        flowing = asyncio.create_task(flow())
        going = asyncio.create_task(come_and_go(seen))
        while not flowing.done() or (await depths(connection)).streams["REQUESTS"].messages:
            await asyncio.gather(*(steady.queue.ack(delivery) for delivery in steady.queue.held))
            await asyncio.sleep(0.001)
        await going
        seen |= {delivery.sequence: at for delivery, at in steady.got}
    assert set(seen) == set(sent)
    assert max(at - sent[sequence] for sequence, at in seen.items()) < ACK_WAIT_S / 2


async def test_after_a_stop_the_next_message_goes_to_the_next_puller(connection: Connection, other: Connection) -> None:
    """D8: no pull request of the one that left is still waiting: 100 ms, not a whole fetch window."""
    async with handling(connection) as leaving, handling(other) as waiting:
        await asyncio.sleep(0.1)
        await leaving.queue.stop()
        await leaving.task
        for number in range(1, 6):
            await publish(connection, 1)
            await waiting.wait_for(number, 0.1)
            await waiting.queue.ack(waiting.got[number - 1][0])
        assert leaving.got == []


async def test_after_a_stop_what_is_held_stays_alive_until_settled(connection: Connection, other: Connection) -> None:
    """A soft stop names what the handler still has; that finishes in peace and nothing more comes."""
    async with handling(connection) as leaving:
        await publish(connection, 1)
        [delivery] = await leaving.wait_for(1)
        assert await leaving.queue.stop() == [delivery]
        await leaving.task  # `batches` has ended
        async with handling(other) as waiting:
            await asyncio.sleep(1.5 * ACK_WAIT_S)
            assert waiting.got == []
            await leaving.queue.ack(delivery)
            assert (await depths(connection)).streams["REQUESTS"].messages == 0


async def test_abandoned_messages_come_again_after_the_ack_wait(connection: Connection, other: Connection) -> None:
    """The hard way out forgets everything without a word: no ACK, no NAK, no sign of life."""
    async with handling(connection) as holder:
        await publish(connection, 1)
        await holder.wait_for(1)
        async with handling(other) as waiting:
            left = asyncio.get_running_loop().time()
            await holder.queue.abandon()
            await waiting.wait_for(1)
            assert ACK_WAIT_S / 2 < waiting.got[0][1] - left < ACK_WAIT_S + 0.4


async def test_a_handler_can_be_cancelled(connection: Connection) -> None:
    """D5: cancelling the loop that reads the batches ends it at once, and costs no message."""
    async with handling(connection) as handler:
        await asyncio.sleep(0.05)
        handler.task.cancel()
        await asyncio.wait([handler.task], timeout=AT_ONCE_S)
        assert handler.task.cancelled()
        again = Handler(handler.queue)
        await publish(connection, 1)
        await again.wait_for(1, AT_ONCE_S)
        again.task.cancel()


async def test_a_missing_consumer_is_a_readable_failure(connection: Connection) -> None:
    """D26: a queue on a consumer that does not exist fails with its name instead of waiting for ever."""
    await call(connection, "CONSUMER.DELETE.REQUESTS.preprocess")
    async with handling(connection) as handler:
        with pytest.raises(TopologyMismatch, match="REQUESTS: consumer preprocess is missing"):
            await asyncio.wait_for(handler.task, 10)


async def test_a_consumer_deleted_under_a_pull_is_a_readable_failure(connection: Connection) -> None:
    """D23, D26: deleted while a pull waits, it is noticed at once and named."""
    async with handling(connection) as handler:
        await first_of(connection, handler)
        await call(connection, "CONSUMER.DELETE.REQUESTS.preprocess")
        with pytest.raises(TopologyMismatch, match="REQUESTS: consumer preprocess is missing"):
            await asyncio.wait_for(handler.task, 10)
        assert not handler.queue.attached


async def test_a_consumer_that_can_be_made_again_is(connection: Connection) -> None:
    """D23, D26: with `ensure`, the queue makes its consumer again and goes on."""
    queue = WorkQueue(
        connection,
        subjects.TICKETS,
        subjects.schedule_consumer("m"),
        slots=2,
        ack_wait_s=1.5,
        ensure=lambda: ensure_schedule_consumer(connection, "m"),
    )
    await queue.start()
    handler = Handler(queue)
    for number in (1, 2):
        await Publisher(connection).publish(subjects.ticket("m", "acme"), b"x")
        await handler.wait_for(number, 2)
        await queue.ack(handler.got[number - 1][0])
        await call(connection, "CONSUMER.DELETE.TICKETS.schedule_m")
        await asyncio.sleep(0.2)
    await queue.stop()
    await handler.task
