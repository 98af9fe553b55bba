"""Reading in order: every message once, none left out, through gaps, restarts and reconnects."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from broker import subjects
from broker.connection import Connection, Inbound
from broker.jetstream_api import ApiError, call
from broker.ordered import OrderedReader
from broker.publisher import Publisher
from broker.server import EmbeddedServer

STREAM = subjects.journal_stream(0)
SUBJECT = subjects.journal(0)

pytestmark = pytest.mark.usefixtures("topology")


@asynccontextmanager
async def reading(reader: OrderedReader, from_sequence: int = 0) -> AsyncGenerator[asyncio.Queue[bytes]]:
    """What a reader reads, begun or started here, as it comes."""
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def read() -> None:
        async for messages in reader.rounds():
            for message in messages:
                got.put_nowait(message.data)

    if from_sequence:
        reader.begin(from_sequence)
    else:
        await reader.start()
    task = asyncio.create_task(read())
    try:
        yield got
    finally:
        await reader.stop()
        await asyncio.wait_for(task, 10)


async def publish(connection: Connection, *numbers: int) -> None:
    """Appends numbers to the journal, once the broker is there."""
    for number in numbers:
        await Publisher(connection).publish_patiently(SUBJECT, str(number).encode(), message_id=str(number))


async def numbers(got: "asyncio.Queue[bytes]", count: int) -> list[int]:
    """The next `count` numbers."""
    async with asyncio.timeout(5):
        return [int(await got.get()) for _ in range(count)]


async def test_what_is_there_comes_first_then_what_is_added(connection: Connection) -> None:
    """Everything from the first message on, in order; `start` says how many wait."""
    await publish(connection, 1, 2, 3)
    reader = OrderedReader(connection, STREAM)
    assert await reader.start() == 3
    await reader.stop()
    async with reading(OrderedReader(connection, STREAM)) as got:
        await publish(connection, 4)
        assert await numbers(got, 4) == [1, 2, 3, 4]


async def test_it_begins_where_it_was_told(connection: Connection) -> None:
    """`from_sequence` is the first one that is read."""
    await publish(connection, 1, 2, 3)
    async with reading(OrderedReader(connection, STREAM), from_sequence=3) as got:
        await publish(connection, 4)
        assert await numbers(got, 2) == [3, 4]


async def test_more_than_the_limit_comes_in_order(connection: Connection) -> None:
    """The limit bounds what waits here, not what is read."""
    async with reading(OrderedReader(connection, STREAM, limit=7)) as got:
        await publish(connection, *range(100))
        assert await numbers(got, 100) == list(range(100))


async def test_nothing_beyond_the_limit_comes_while_a_round_is_worked_on(connection: Connection) -> None:
    """What is in hand counts: only when whoever works on a round comes back is there room for as many again."""
    reader = OrderedReader(connection, STREAM, limit=4)
    await publish(connection, *range(10))
    await reader.start()
    got: list[Inbound] = []
    async for messages in reader.rounds():
        got += messages
        await asyncio.sleep(0.05)
        assert len(messages) + len(reader._pull.waiting) <= 4
        if len(got) == 10:
            await reader.stop()
    assert [int(message.data) for message in got] == list(range(10))


async def test_it_can_begin_before_the_broker_is_there(server: EmbeddedServer, connection: Connection) -> None:
    """`begin` waits for nobody: what is stored once the broker is back is read, from the first message on."""
    await publish(connection, 1, 2)
    await server.kill()
    while connection.connected:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.001)
    reader = OrderedReader(connection, STREAM)
    async with reading(reader, from_sequence=1) as got:
        assert not reader.attached
        await server.restart()
        await publish(connection, 3)
        assert await numbers(got, 3) == [1, 2, 3]


async def test_an_unused_consumer_goes_after_the_time_that_was_asked_for(connection: Connection) -> None:
    """A reader that died without a word leaves nothing behind for longer than `inactive_s`."""
    reader = OrderedReader(connection, STREAM, inactive_s=0.2)
    await reader.start()
    await reader._pull.cut()
    async with asyncio.timeout(5):
        while (await call(connection, f"STREAM.INFO.{STREAM}"))["state"]["consumer_count"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_killed_broker_leaves_no_gap(server: EmbeddedServer, connection: Connection) -> None:
    """D6: the consumer dies with the broker; reading goes on after the last message, none twice."""
    async with reading(OrderedReader(connection, STREAM)) as got:
        await publish(connection, 1, 2)
        assert await numbers(got, 2) == [1, 2]
        await server.kill()
        await server.restart()
        await publish(connection, 3, 4)
        assert await numbers(got, 2) == [3, 4]


async def test_a_deleted_consumer_is_made_again(connection: Connection) -> None:
    """D23: deleted by somebody, or inactive for too long: reading goes on where it was."""
    reader = OrderedReader(connection, STREAM)
    async with reading(reader) as got:
        await publish(connection, 1)
        assert await numbers(got, 1) == [1]
        await call(connection, f"CONSUMER.DELETE.{STREAM}.{reader._consumer}")
        await publish(connection, 2, 3)
        assert await numbers(got, 2) == [2, 3]


async def test_a_message_that_is_lost_on_the_way_is_read_again(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap in the consumer's own numbering means a loss; it is read again from there, nothing twice."""
    reader = OrderedReader(connection, STREAM)
    take = reader._pull.take
    lost: list[Inbound] = []

    async def lose_one() -> list[Inbound]:
        messages = await take()
        if not lost and len(messages) > 3:
            lost.append(messages.pop(2))
        return messages

    monkeypatch.setattr(reader._pull, "take", lose_one)
    await publish(connection, *range(10))
    async with reading(reader) as got:
        assert await numbers(got, 10) == list(range(10))
        assert lost
        assert got.empty()


async def test_what_two_consumers_sent_counts_once(connection: Connection) -> None:
    """What the consumer before this one sent late is sent again by this one; what was read then is not read again."""
    reader = OrderedReader(connection, STREAM)
    await reader.start()
    await publish(connection, 1)
    [message] = await reader._pull.take()
    assert not reader._accept(replace(message, reply=message.reply.replace(reader._consumer, "ordered_0")))
    assert reader._accept(message)
    assert not reader._accept(replace(message, reply=message.reply.replace(".1.1.1.", ".1.1.2.")))
    assert reader._expected == 3
    await reader.stop()


async def test_no_stream_is_an_error_at_the_start(connection: Connection) -> None:
    """A reader on nothing fails when it is started."""
    with pytest.raises(ApiError, match="stream not found"):
        await OrderedReader(connection, "NOTHING").start()


async def test_a_stopped_reader_leaves_no_consumer(connection: Connection) -> None:
    """Consumers of readers that have ended do not pile up in the server."""
    async with reading(OrderedReader(connection, STREAM)):
        assert (await call(connection, f"STREAM.INFO.{STREAM}"))["state"]["consumer_count"] == 1
    await asyncio.sleep(0.05)
    assert (await call(connection, f"STREAM.INFO.{STREAM}"))["state"]["consumer_count"] == 0
