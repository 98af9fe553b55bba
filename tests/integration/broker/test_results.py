"""Results on a real broker: rounds that are proved to be stored, also through its death, and their history."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

import msgspec
import pytest
import pytest_asyncio

from broker import subjects
from broker.burst import Burst, Message
from broker.connection import Connection, TooLarge
from broker.direct_get import StoredMessage, all_of_subject
from broker.jetstream_api import call
from broker.results import Outgoing, ResultHistory, ResultWriter
from broker.server import EmbeddedServer
from broker.topology import Topology
from schemas.codec import CONTENT_TYPES, Encoding, WireError, encode
from schemas.result import Result

PARTITION = 1
STREAM = subjects.results_stream(PARTITION)


def subject(request: str) -> str:
    return subjects.result(PARTITION, "acme", "session", request)


def outgoing(request: str, at: int, *, encoding: Encoding = "msgpack", final: bool = False) -> Outgoing:
    result = Result(choice=0, attempt=1, at=at, token_from=at, token_to=at + 1, finish="stop" if final else "")
    message_id = f"acme.{request}.0.end" if final else ""
    return Outgoing(subject(request), encode(result, encoding), CONTENT_TYPES[encoding], message_id)


async def stored(connection: Connection) -> list[StoredMessage]:
    return await all_of_subject(connection, STREAM, "hr.result.>")


def ats(messages: list[StoredMessage], request: str) -> list[int]:
    return [msgspec.msgpack.decode(m.data)["at"] for m in messages if m.subject == subject(request)]


@pytest_asyncio.fixture
async def writer(connection: Connection, topology: Topology) -> AsyncIterator[ResultWriter]:
    yield ResultWriter(connection, PARTITION)


async def test_rounds_are_stored_once_and_in_order(writer: ResultWriter, connection: Connection):
    """While nothing fails every result is stored exactly once, in order, with its content type."""
    await writer.publish_round([])
    await writer.publish_round([outgoing("r1", 0)])
    await writer.publish_round([outgoing(f"r{n % 7}", n) for n in range(1, 300)])
    messages = await stored(connection)
    assert [msgspec.msgpack.decode(m.data)["at"] for m in messages] == list(range(300))
    assert {m.headers["Content-Type"] for m in messages} == {"application/msgpack"}


async def test_a_new_owner_goes_on_where_the_stream_is(writer: ResultWriter, connection: Connection):
    """The first round of an owner reads how far the stream is, so that it needs no repetition."""
    await writer.publish_round([outgoing("a", n) for n in range(5)])
    await ResultWriter(connection, PARTITION).publish_round([outgoing("b", n) for n in range(5)])
    assert len(await stored(connection)) == 10


async def test_a_new_owner_whose_first_results_are_stored_already(writer: ResultWriter, connection: Connection):
    """The acknowledgement of a terminal result that is there already says nothing of where the stream is."""
    await writer.publish_round([outgoing("a", 9, final=True), outgoing("c", 0)])
    successor = ResultWriter(connection, PARTITION)
    await successor.publish_round([outgoing("a", 9, final=True)])
    await successor.publish_round([outgoing("a", 9, final=True), outgoing("b", 0), outgoing("b", 1)])
    await successor.publish_round([outgoing("b", 2), outgoing("b", 3)])
    messages = await stored(connection)
    assert (ats(messages, "a"), ats(messages, "b"), ats(messages, "c")) == ([9], [0, 1, 2, 3], [0])


async def test_a_round_that_does_not_fit_is_stored_again(writer: ResultWriter, connection: Connection):
    """Another writer in between (an owner that does not know yet that it lost its lease): the count does not fit.

    The round is stored again, each result acknowledged, and the rounds after it go on as before.
    """
    await writer.publish_round([outgoing("a", 0)])
    await ResultWriter(connection, PARTITION).publish_round([outgoing("other", 0)])
    await writer.publish_round([outgoing("a", 1), outgoing("a", 2)])
    await writer.publish_round([outgoing("a", 3), outgoing("a", 4)])
    assert ats(await stored(connection), "a") == [0, 1, 2, 1, 2, 3, 4]


@pytest.mark.parametrize("last", [False, True])
async def test_a_terminal_result_is_stored_once(writer: ResultWriter, connection: Connection, last: bool):
    """A terminal result that is stored already is a success, whether it is the last of its round or not."""
    end = outgoing("a", 9, final=True)
    await writer.publish_round([end])
    others = [outgoing("b", 0), outgoing("b", 1)]
    async with asyncio.timeout(5):
        await writer.publish_round([*others, end] if last else [end, *others])
        await writer.publish_round([outgoing("b", 2)])
    messages = await stored(connection)
    assert ats(messages, "a") == [9]
    assert ats(messages, "b")[-3:] == [0, 1, 2]
    assert set(ats(messages, "b")) == {0, 1, 2}


async def test_a_message_lost_on_the_way_is_found_missing(
    writer: ResultWriter, connection: Connection, monkeypatch: pytest.MonkeyPatch
):
    """A plain publish that never arrived, which no error tells, shows in the sequence of the last one."""
    real, lost = Burst.publish, list[Message]()

    async def publish(self: Burst, messages: Iterable[Message]) -> None:
        arriving = list(messages)
        if not lost:
            lost.extend(each for each in arriving if each[0] == subject("lost"))
        await real(self, [each for each in arriving if each not in lost])

    monkeypatch.setattr(Burst, "publish", publish)
    await writer.publish_round([outgoing("a", 0), outgoing("lost", 1), outgoing("a", 2)])
    assert lost
    messages = await stored(connection)
    assert ats(messages, "lost") == [1]
    assert ats(messages, "a") == [0, 2, 0, 2]


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 3, 5, 8, 12, 20])
async def test_a_broker_killed_in_mid_round(
    writer: ResultWriter, connection: Connection, server: EmbeddedServer, delay_ms: int
):
    """Through a SIGKILL of the broker in mid round: all results are stored, in order for each subject."""
    requests, count = 5, 600
    written = 0

    async def rounds() -> None:
        nonlocal written
        while written < 6 * count or not killed.done():
            await writer.publish_round([outgoing(f"r{n % requests}", n) for n in range(written, written + count)])
            written += count

    async def kill() -> None:
        await asyncio.sleep(0.02 + delay_ms / 1000)
        await server.kill()
        await asyncio.sleep(0.3)
        await server.restart()

    killed = asyncio.create_task(kill())
    async with asyncio.timeout(20):
        await rounds()
    messages = await stored(connection)
    for number in range(requests):
        wanted = [n for n in range(written) if n % requests == number]
        assert in_order(wanted, ats(messages, f"r{number}"))


def in_order(wanted: list[int], found: list[int]) -> bool:
    """Whether `wanted` is in `found`, in its order, perhaps with others between."""
    rest = iter(found)
    return all(each in rest for each in wanted)


async def test_a_round_waits_for_a_broker_that_is_away(
    writer: ResultWriter, connection: Connection, server: EmbeddedServer
):
    """A round that begins while the broker is away is stored within moments of its return, without a pile of copies."""
    await writer.publish_round([outgoing("a", 0)])
    await server.kill()
    waiting = asyncio.create_task(writer.publish_round([outgoing("a", 1), outgoing("a", 2)]))
    await asyncio.sleep(1)
    assert not waiting.done()
    await server.restart()
    back = time.monotonic()
    await waiting
    assert time.monotonic() - back < 10
    assert ats(await stored(connection), "a") == [0, 1, 2]


async def test_a_round_may_begin_before_the_reconnect_is_told(
    writer: ResultWriter, connection: Connection, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
):
    """The client library is connected a round trip before it says so: that is no loss, nothing is written again."""
    await writer.publish_round([outgoing("a", 0)])
    begun = asyncio.Event()
    flush, publish = connection.client.flush, writer._burst.publish

    async def flush_late(*arguments: int) -> None:
        await begun.wait()
        await flush(*arguments)

    async def publish_meanwhile(messages: Iterable[Message]) -> None:
        begun.set()
        while not connection.reconnects:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await publish(messages)

    monkeypatch.setattr(connection.client, "flush", flush_late)
    monkeypatch.setattr(writer._burst, "publish", publish_meanwhile)
    await server.restart()
    await writer.publish_round([outgoing("a", 1), outgoing("a", 2)])
    assert ats(await stored(connection), "a") == [0, 1, 2]


async def test_a_cancelled_round_leaves_the_writer_usable(writer: ResultWriter, connection: Connection):
    """After a round that was cancelled the writer does not trust its count, and goes on."""
    await writer.publish_round([outgoing("a", 0)])
    round_ = asyncio.create_task(writer.publish_round([outgoing("a", n) for n in range(1, 200)]))
    await asyncio.sleep(0)
    round_.cancel()
    await asyncio.gather(round_, return_exceptions=True)
    await writer.publish_round([outgoing("b", 0), outgoing("b", 1)])
    assert ats(await stored(connection), "b")[-2:] == [0, 1]


async def test_a_result_that_is_too_large_sends_nothing(writer: ResultWriter, connection: Connection):
    """A round with a result beyond what the broker takes is refused as a whole; the connection lives on."""
    large = Outgoing(subject("a"), b"x" * (connection.max_payload + 1), CONTENT_TYPES["msgpack"])
    with pytest.raises(TooLarge):
        await writer.publish_round([outgoing("a", 0), large, outgoing("a", 1)])
    assert await stored(connection) == []
    await writer.publish_round([outgoing("a", 0)])
    assert len(await stored(connection)) == 1


async def test_full_results_lose_the_oldest(writer: ResultWriter, connection: Connection):
    """A results stream at its limit makes room by itself: a round is never refused, and is not published twice."""
    config = (await call(connection, f"STREAM.INFO.{STREAM}"))["config"]
    await call(connection, f"STREAM.UPDATE.{STREAM}", {**config, "max_bytes": 20_000})
    for start in range(0, 1000, 100):
        await writer.publish_round([outgoing("a", n) for n in range(start, start + 100)])
    found = ats(await stored(connection), "a")
    assert found == list(range(1000 - len(found), 1000))
    assert 0 < len(found) < 1000


async def test_history_of_one_request(writer: ResultWriter, connection: Connection):
    """All results of a request and of no other, in order, whichever encoding it asked for, also beyond one batch."""
    mixed = [outgoing(f"r{n % 3}", n, encoding="json" if n % 2 else "msgpack") for n in range(4000)]
    await writer.publish_round(mixed)
    history = ResultHistory(connection, PARTITION)
    for number in range(3):
        results = await history.of("acme", "session", f"r{number}")
        assert [each.at for each in results] == list(range(number, 4000, 3))
    assert await history.of("acme", "session", "unknown") == []
    assert await history.exists(subject("r1"))
    assert not await history.exists(subject("unknown"))


async def test_history_of_large_results(writer: ResultWriter, connection: Connection):
    """A history larger than one answer of the broker may be is read whole."""
    text = "x" * 1_000_000
    results = [Result(choice=0, attempt=1, at=n, text=text) for n in range(30)]
    await writer.publish_round([Outgoing(subject("a"), encode(each), CONTENT_TYPES["msgpack"]) for each in results])
    assert await ResultHistory(connection, PARTITION).of("acme", "session", "a") == results


async def test_history_that_cannot_be_read(writer: ResultWriter, connection: Connection):
    """A stored result of another version is an error, never silently left out."""
    await writer.publish_round([outgoing("a", 0), Outgoing(subject("a"), b"\x81\xa1v\x63", CONTENT_TYPES["msgpack"])])
    with pytest.raises(WireError):
        await ResultHistory(connection, PARTITION).of("acme", "session", "a")
