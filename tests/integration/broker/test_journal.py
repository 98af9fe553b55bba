"""Journals on a real broker: appending, and reading in order without a gap through everything that can happen."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from broker import subjects
from broker.connection import BrokerOptions, Connection, Inbound, TooLarge, Unavailable
from broker.direct_client import DirectClient
from broker.jetstream_api import ApiError, call
from broker.journal import JournalReader, JournalRecord, JournalWriter, lag, purge
from broker.publisher import Full
from broker.server import EmbeddedServer
from broker.topology import Topology
from schemas.codec import decode
from schemas.journal import JournalMessage, Released, Tokens

PARTITION = 2
STREAM = subjects.journal_stream(PARTITION)


def entry(number: int, padding: int = 0) -> JournalMessage:
    return JournalMessage(origin="x" * padding, released=[Released(key="acme.r", choice=0, attempt=number)])


def number_of(record: JournalRecord) -> int:
    assert record.message is not None
    return record.message.released[0].attempt


def number_in(message: Inbound) -> int:
    return decode(JournalMessage, message.data).released[0].attempt


class Reading:
    """A reader at work, and all that it has read."""

    def __init__(self, reader: JournalReader) -> None:
        self.reader = reader
        self.rounds: list[list[JournalRecord]] = []
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for records in self.reader.rounds():
            self.rounds.append(records)

    @property
    def records(self) -> list[JournalRecord]:
        return [record for round_ in self.rounds for record in round_]

    @property
    def numbers(self) -> list[int]:
        return [number_of(record) for record in self.records]

    async def until(self, count: int, within_s: float = 15.0) -> None:
        began = time.monotonic()
        while len(self.records) < count:
            if self.task.done() or time.monotonic() - began > within_s:
                pytest.fail(f"{len(self.records)} of {count} records after {within_s} s")
            await asyncio.sleep(0.005)

    async def until_number(self, number: int, within_s: float = 15.0) -> None:
        async with asyncio.timeout(within_s):
            while not self.records or self.numbers[-1] != number:  # noqa: ASYNC110 - the reader has no event
                await asyncio.sleep(0.005)


Read = Callable[..., Awaitable[Reading]]


@pytest_asyncio.fixture
async def read(connection: Connection, topology: Topology) -> AsyncIterator[Read]:
    readings: list[Reading] = []

    async def start(from_sequence: int = 0, limit: int = 1000) -> Reading:
        reader = JournalReader(connection, PARTITION, limit=limit)
        await reader.start(from_sequence)
        readings.append(Reading(reader))
        return readings[-1]

    yield start
    for reading in readings:
        await reading.reader.stop()
        reading.task.cancel()
        await asyncio.gather(reading.task, return_exceptions=True)


@pytest_asyncio.fixture
async def writer(broker_url: str, topology: Topology) -> AsyncIterator[JournalWriter]:
    connection = await Connection.open(BrokerOptions(url=broker_url, name="writer"))
    yield JournalWriter(connection)
    await connection.close()


async def append_all(writer: JournalWriter, numbers: range) -> list[int]:
    return [await writer.append(PARTITION, entry(number), timeout_s=20) for number in numbers]


async def append_all_padded(writer: JournalWriter, count: int) -> None:
    for number in range(count):
        await writer.append(PARTITION, entry(number, padding=500))


async def test_an_append_tells_its_sequence(writer: JournalWriter, read: Read):
    """Appends return the sequences that the reader sees, in their order, with the broker's time stamp."""
    reading = await read()
    sequences = await append_all(writer, range(50))
    await reading.until(50)
    assert [record.sequence for record in reading.records] == sequences == list(range(1, 51))
    assert reading.numbers == list(range(50))
    assert all(abs(record.stored_at - time.time()) < 30 for record in reading.records)


async def test_what_waits_comes_in_one_round(writer: JournalWriter, read: Read):
    """A backlog comes in rounds as large as it is deep; while a round is worked on, the next ones gather in one."""
    await append_all(writer, range(400))
    reading = await read()
    await reading.until(400)
    assert len(reading.rounds) < 40
    assert max(len(round_) for round_ in reading.rounds) > 20


async def test_a_slow_owner_gets_at_most_the_limit(writer: JournalWriter, connection: Connection, topology: Topology):
    """Nobody holds more of a deep backlog than the limit, and a round that takes long gathers all up to it."""
    await append_all(writer, range(100))
    reader = JournalReader(connection, PARTITION, limit=16)
    await reader.start()
    sizes: list[int] = []
    async for records in reader.rounds():
        sizes.append(len(records))
        await asyncio.sleep(0.02)
        if sum(sizes) == 100:
            await reader.stop()
    assert max(sizes) <= 16
    assert len(sizes) <= 16


async def test_latency_from_append_to_round(writer: JournalWriter, read: Read):
    """An entry reaches the waiting owner about a millisecond after its append began."""
    reading, delays = await read(), list[float]()
    await append_all(writer, range(5))
    await reading.until(5)
    for number in range(5, 205):
        began = time.perf_counter()
        appending = asyncio.create_task(writer.append(PARTITION, entry(number)))
        while len(reading.records) <= number:  # noqa: ASYNC110 - an event would add its own latency
            await asyncio.sleep(0)
        delays.append(time.perf_counter() - began)
        await appending
    delays.sort()
    print(f"append → round: p50 {delays[100] * 1e3:.2f} ms, p99 {delays[198] * 1e3:.2f} ms")
    assert delays[100] < 0.005


async def test_reading_begins_where_it_is_told_to(writer: JournalWriter, read: Read):
    """From a sequence on; from the first that is left, where that one was purged."""
    await append_all(writer, range(20))
    middle = await read(from_sequence=11)
    await middle.until(10)
    assert middle.numbers == list(range(10, 20))


async def test_purge_is_the_commit(writer: JournalWriter, read: Read, connection: Connection):
    """A purge removes all up to its sequence and nothing beyond; what is left is the lag; sequences go on."""
    assert await lag(connection, PARTITION) == 0
    await append_all(writer, range(20))
    await purge(connection, PARTITION, 0)
    assert await lag(connection, PARTITION) == 20
    await purge(connection, PARTITION, 12)
    assert await lag(connection, PARTITION) == 8
    reading = await read(from_sequence=5)
    await reading.until(8)
    assert reading.numbers == list(range(12, 20))
    await purge(connection, PARTITION, 20)
    assert await lag(connection, PARTITION) == 0
    assert await writer.append(PARTITION, entry(20)) == 21


async def test_sequences_go_on_after_a_purge_and_a_crash(
    writer: JournalWriter, server: EmbeddedServer, connection: Connection
):
    """An empty journal whose broker is killed does not begin anew: attempts are sequences, and must never repeat."""
    for start in range(0, 30, 10):
        assert await append_all(writer, range(start, start + 10)) == list(range(start + 1, start + 11))
        await purge(connection, PARTITION, start + 10)
        await server.kill()
        await server.restart()
        await connection.wait_connected()


async def test_purging_while_reading(writer: JournalWriter, read: Read, connection: Connection):
    """An owner that purges behind itself all the time misses nothing of what comes."""
    reading = await read()
    appending = asyncio.create_task(append_all(writer, range(600)))
    while not appending.done() or len(reading.records) < 600:
        if reading.records:
            await purge(connection, PARTITION, reading.records[-1].sequence)
        await asyncio.sleep(0.003)
    assert reading.numbers == list(range(600))
    assert len([each for each in reading.rounds if each]) > 20


async def test_a_prefix_purged_ahead_of_the_reader(writer: JournalWriter, read: Read, connection: Connection):
    """Where another owner purged beyond our position (it had dealt with that), reading goes on with what is left."""
    await append_all(writer, range(100))
    reading = await read(limit=8)
    await purge(connection, PARTITION, 90)
    await append_all(writer, range(100, 110))
    await reading.until_number(109)
    assert reading.numbers[-19:] == list(range(91, 110))
    assert reading.numbers == sorted(set(reading.numbers))


@pytest.mark.parametrize("down_s", [0.0, 0.6])
async def test_broker_killed_while_reading(writer: JournalWriter, read: Read, server: EmbeddedServer, down_s: float):
    """Through a SIGKILL of the broker and its return on the same store: every append once, in order, none missing."""
    reading = await read()
    appending = asyncio.create_task(append_all(writer, range(1500)))
    await reading.until(200)
    await server.kill()
    await asyncio.sleep(down_s)
    await server.restart()
    back = time.monotonic()
    sequences = await appending
    await reading.until(1500)
    print(f"all read {time.monotonic() - back:.2f} s after the broker's return")
    assert reading.numbers == list(range(1500))
    assert [record.sequence for record in reading.records] == sequences


async def test_appends_soon_after_a_broker_returns(writer: JournalWriter, read: Read, server: EmbeddedServer):
    """Reader and writer are back soon after the broker, long before their own time-outs."""
    reading = await read()
    await append_all(writer, range(3))
    await server.kill()
    await server.restart()
    back = time.monotonic()
    await append_all(writer, range(3, 4))
    await reading.until(4, within_s=10)
    assert time.monotonic() - back < 4


async def test_consumer_deleted(writer: JournalWriter, read: Read, connection: Connection):
    """Somebody deletes the reader's consumer, again and again: reading goes on without a gap."""
    reading = await read()
    appended = deleted = 0
    while deleted < 4:
        await append_all(writer, range(appended, appended + 50))
        appended += 50
        for name in await consumer_names(connection):
            with contextlib.suppress(ApiError):
                await call(connection, f"CONSUMER.DELETE.{STREAM}.{name}")
                deleted += 1
        await asyncio.sleep(0.05)
    await append_all(writer, range(appended, appended + 50))
    await reading.until(appended + 50, within_s=15)
    assert reading.numbers == list(range(appended + 50))


async def consumer_names(connection: Connection) -> list[str]:
    names: list[str] | None = (await call(connection, f"CONSUMER.NAMES.{STREAM}"))["consumers"]
    return names or []


async def consumers_gone(connection: Connection) -> None:
    while await consumer_names(connection):  # noqa: ASYNC110 - asks the broker
        await asyncio.sleep(0.1)


async def test_consumer_expired_while_a_round_was_worked_on(
    writer: JournalWriter, connection: Connection, topology: Topology
):
    """An owner so slow that the broker removes its consumer, unused for too long, goes on with the next entry."""
    await append_all(writer, range(30))
    reader = JournalReader(connection, PARTITION, limit=5, inactive_s=0.2)
    await reader.start()
    numbers: list[int] = []
    async for records in reader.rounds():
        first = not numbers
        numbers += [number_of(record) for record in records]
        if first:
            await consumers_gone(connection)
        if numbers[-1] == 29:
            await reader.stop()
    assert numbers == list(range(30))


async def test_what_an_older_consumer_delivered_is_not_read_twice(
    writer: JournalWriter, connection: Connection, topology: Topology
):
    """The consumer goes while a round is worked on and more is queued behind it: each entry is read once, in order."""
    await append_all(writer, range(1))
    reader = JournalReader(connection, PARTITION, limit=100)
    await reader.start()
    numbers: list[int] = []
    async for records in reader.rounds():
        first = not numbers
        numbers += [number_of(record) for record in records]
        if first:
            await append_all(writer, range(1, 200))
            pull = reader._reader._pull
            assert len(pull.waiting) == 99
            pull.renew("somebody deleted it")
            await asyncio.sleep(0.3)
        if numbers[-1] == 199:
            await reader.stop()
    assert numbers == list(range(200))


async def test_a_delivery_that_got_lost(
    writer: JournalWriter, connection: Connection, topology: Topology, monkeypatch: pytest.MonkeyPatch
):
    """One delivery that never arrived is found missing by the next one, and read again before it."""
    reader = JournalReader(connection, PARTITION)
    pull, lost = reader._reader._pull, list[str]()
    real = pull._on_message

    def lossy(message: Inbound) -> None:
        if message.reply and number_in(message) == 10 and not lost:
            lost.append(message.reply)
        else:
            real(message)

    monkeypatch.setattr(pull, "_on_message", lossy)
    await reader.start()
    reading = Reading(reader)
    await append_all(writer, range(20))
    await reading.until(20)
    assert lost
    assert reading.numbers == list(range(20))
    await reader.stop()
    await reading.task


async def test_what_cannot_be_decoded_is_a_record_without_message(
    writer: JournalWriter, read: Read, connection: Connection
):
    """Bytes that are no journal message take their place in the order; the entries around them are read."""
    reading = await read()
    await append_all(writer, range(1))
    await connection.request(subjects.journal(PARTITION), b"\xc1 not msgpack", 2)
    for key in ("acme.r1", "acme.*", "acme"):  # one that nothing could be looked up by takes its message along
        tokens = Tokens(key=key, choice=0, attempt=1, offset=0, ids=[1])
        await writer.append(PARTITION, JournalMessage(origin="w", tokens=[tokens, tokens]))
    await append_all(writer, range(1, 2))
    await reading.until(6)
    assert [record.sequence for record in reading.records] == [1, 2, 3, 4, 5, 6]
    assert [record.message is None for record in reading.records] == [False, True, False, True, True, False]


async def test_a_stopped_reader_leaves_nothing_behind(writer: JournalWriter, read: Read, connection: Connection):
    """After `stop` the rounds end, and the broker has no consumer of it any more."""
    reading = await read()
    await append_all(writer, range(1))
    await reading.until(1)
    await reading.reader.stop()
    await asyncio.wait_for(reading.task, 10)
    assert await consumer_names(connection) == []


async def test_a_journal_that_does_not_exist(connection: Connection, topology: Topology):
    """Reading a partition that there is none of is an error, not an endless wait."""
    reader = JournalReader(connection, topology.partitions + 3)
    await reader.start()
    with pytest.raises(ApiError):
        async for _ in reader.rounds():
            pass
    await reader.stop()


async def test_two_readers_see_the_same(writer: JournalWriter, read: Read):
    """Two owners for a moment read the same journal, each all of it."""
    first, second = await read(), await read()
    await append_all(writer, range(100))
    await first.until(100)
    await second.until(100)
    assert first.numbers == second.numbers == list(range(100))


class LosesAnswers(Connection):
    """A connection that loses the broker's answer to the first sending of every append."""

    def __init__(self, client: DirectClient, options: BrokerOptions) -> None:
        super().__init__(client, options)
        self.lost: set[str] = set()

    async def request(
        self, subject: str, data: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Inbound:
        answer = await super().request(subject, data, timeout_s, headers)
        message_id = (headers or {}).get("Nats-Msg-Id", "")
        if message_id and message_id not in self.lost:
            self.lost.add(message_id)
            raise Unavailable("the answer was lost")
        return answer


async def test_an_append_whose_answer_was_lost_is_stored_once(broker_url: str, connection: Connection, read: Read):
    """Sent again after a lost answer, an append is recognised by the broker: stored once, and its own sequence told."""
    losing = await LosesAnswers.open(BrokerOptions(url=broker_url))
    reading = await read()
    assert await append_all(JournalWriter(losing), range(10)) == list(range(1, 11))
    assert len(losing.lost) == 10
    await reading.until(10)
    assert await lag(connection, PARTITION) == 10
    await losing.close()


async def test_two_writers_never_swallow_each_other(broker_url: str, connection: Connection, writer: JournalWriter):
    """Equal messages of two writers, and of one, are all stored: an id belongs to one append."""
    other = JournalWriter(connection)
    for _ in range(3):
        await other.append(PARTITION, entry(1))
        await writer.append(PARTITION, entry(1))
    assert await lag(connection, PARTITION) == 6


async def test_a_full_journal_refuses(writer: JournalWriter, connection: Connection):
    """At its limit a journal refuses at once, and takes more after a purge; what it held stays."""
    config = (await call(connection, f"STREAM.INFO.{STREAM}"))["config"]
    await call(connection, f"STREAM.UPDATE.{STREAM}", {**config, "max_bytes": 5_000})
    await append_all_padded(writer, 5)
    with pytest.raises(Full):
        await append_all_padded(writer, 20)
    held = await lag(connection, PARTITION)
    assert held >= 5
    await purge(connection, PARTITION, held)
    assert await writer.append(PARTITION, entry(1)) == held + 1


async def test_an_append_that_is_too_large(writer: JournalWriter, connection: Connection):
    """A message beyond what the broker takes is refused before it is sent; the next one is stored."""
    with pytest.raises(TooLarge):
        await writer.append(PARTITION, entry(1, padding=connection.client.max_payload))
    assert await writer.append(PARTITION, entry(2)) == 1


async def test_an_append_gives_up_in_time(writer: JournalWriter, server: EmbeddedServer):
    """While the broker is away an append raises after its time-out, and nothing of it is stored later."""
    await writer.append(PARTITION, entry(0))
    await server.kill()
    while writer._connection.connected:  # noqa: ASYNC110 - what was sent before it knew may be stored later
        await asyncio.sleep(0.001)
    began = time.monotonic()
    with pytest.raises(Unavailable):
        await writer.append(PARTITION, entry(1), timeout_s=0.7)
    assert 0.5 < time.monotonic() - began < 4
    await server.restart()
    assert await writer.append(PARTITION, entry(2)) == 2
