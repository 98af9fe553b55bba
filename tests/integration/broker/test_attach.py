"""Reading an answer that somebody else asked for, on a real broker; the test plays the owner of the partition."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from broker import subjects
from broker.answer_stream import BACKLOG
from broker.chunk import Chunk
from broker.client import Headrace
from broker.connection import BrokerError, Connection
from broker.publisher import Publisher
from broker.registry import Registry
from broker.server import EmbeddedServer
from broker.topology import Topology
from schemas.codec import CONTENT_TYPES, Encoding, encode
from schemas.faults import Fault, RequestFault
from schemas.model import ModelCard
from schemas.result import Result, Usage
from schemas.ticket import EngineSampling

CARD = ModelCard(
    slug="m",
    name="m",
    engine="simulated",
    context_length=64,
    vocab_size=8,
    eos_ids=[],
    defaults=EngineSampling(max_tokens=0),
)
USAGE = Usage(prompt_tokens=1, completion_tokens=1)


class Owner:
    """Stores the results of one request, whose token i has the text `i;`."""

    def __init__(self, connection: Connection, topology: Topology, request: str, session: str = "elsewhere") -> None:
        self._publisher = Publisher(connection)
        partition = subjects.partition_of(f"default.{request}", topology.partitions)
        self.subject = subjects.result(partition, "default", session, request)

    async def store(
        self,
        first: int,
        last: int,
        *,
        final: bool = False,
        choice: int = 0,
        choices: int = 1,
        encoding: Encoding = "json",
    ) -> None:
        """Tokens [first, last) as one result."""
        result = Result(
            choice=choice,
            attempt=1,
            at=1,
            token_from=first,
            token_to=last,
            text_from=len(text_of(0, first)),
            text=text_of(first, last),
            ids=list(range(first, last)),
            finish="length" if final else "",
            usage=USAGE if final else None,
            choices=choices if final else 1,
        )
        await self._publisher.publish(self.subject, encode(result, encoding), content_type=CONTENT_TYPES[encoding])

    async def fail(self, fault: Fault) -> None:
        await self._publisher.publish(self.subject, encode(Result(choice=0, attempt=1, at=1, fault=fault)))


class Reader:
    """Reads on in the background."""

    def __init__(self, client: Headrace, request: str, **options: Any) -> None:
        self.chunks: list[Chunk] = []
        self.more = asyncio.Event()
        self.task = asyncio.create_task(self._read(client.attach(request, **options)))

    async def _read(self, chunks: AsyncIterator[Chunk]) -> None:
        async for chunk in chunks:
            self.chunks.append(chunk)
            self.more.set()

    async def until_tokens(self, count: int) -> None:
        async with asyncio.timeout(30):
            while not self.chunks or self.chunks[-1].token_from + len(self.chunks[-1].ids) < count:
                self.more.clear()
                await self.more.wait()

    async def end(self) -> None:
        async with asyncio.timeout(30):
            await self.task

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def ids(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.ids]


def text_of(first: int, last: int) -> str:
    return "".join(f"{number};" for number in range(first, last))


@pytest_asyncio.fixture
async def client(broker_url: str, topology: Topology) -> AsyncIterator[Headrace]:
    async with Headrace(broker_url) as opened:
        yield opened


@pytest.fixture
def owner(connection: Connection, topology: Topology) -> Owner:
    return Owner(connection, topology, "r1")


async def test_stored_then_live(client: Headrace, owner: Owner) -> None:
    """What was stored before and what comes afterwards are one text; several readers at once, in any encoding."""
    await owner.store(0, 4)
    await owner.store(4, 9, encoding="msgpack")
    readers = [Reader(client, "r1"), Reader(client, "r1")]
    for reader in readers:
        await reader.until_tokens(9)
    await owner.store(7, 12)
    for reader in readers:
        await reader.until_tokens(12)
    await owner.store(12, 15, final=True)
    for reader in readers:
        await reader.end()
        assert (reader.text, reader.ids) == (text_of(0, 15), list(range(15)))
        assert reader.chunks[-1].usage == USAGE


@pytest.mark.parametrize("start", range(16))
async def test_from_any_token(client: Headrace, owner: Owner, start: int) -> None:
    """With the length of the text that one has nothing comes twice; without it the text begins with a result."""
    for first, last in ((0, 4), (4, 9), (7, 12), (12, 15)):
        await owner.store(first, last, final=last == 15)
    exact = Reader(client, "r1", from_token=start, from_text=len(text_of(0, start)))
    await exact.end()
    assert (exact.text, exact.ids) == (text_of(start, 15), list(range(start, 15))), exact.chunks
    loose = Reader(client, "r1", from_token=start)
    await loose.end()
    text = text_of(0, start)
    for chunk in loose.chunks:
        text = text[: chunk.text_from] + chunk.text
    assert (text, loose.ids) == (text_of(0, 15), list(range(start, 15)))


async def test_a_start_that_is_still_to_come(client: Headrace, owner: Owner) -> None:
    """Somebody who knows more than is stored waits for what comes after; nothing before it is shown."""
    await owner.store(0, 4)
    reader = Reader(client, "r1", from_token=6, from_text=len(text_of(0, 6)))
    await owner.store(4, 8)
    await reader.until_tokens(8)
    await owner.store(8, 9, final=True)
    await reader.end()
    assert (reader.text, reader.ids) == (text_of(6, 9), [6, 7, 8])


async def test_a_broker_that_dies_meanwhile(client: Headrace, owner: Owner, server: EmbeddedServer) -> None:
    """Through a SIGKILL and a restart of the broker: what was stored while the reader had no connection comes too."""
    await owner.store(0, 4)
    reader = Reader(client, "r1")
    await reader.until_tokens(4)
    await server.kill()
    await server.restart()
    await patiently(lambda: owner.store(4, 9))
    await patiently(lambda: owner.store(9, 10, final=True))
    await reader.end()
    assert (reader.text, reader.ids) == (text_of(0, 10), list(range(10)))


async def patiently(store: Callable[[], Awaitable[None]]) -> None:
    """As an owner does: again until it is stored."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store()
            except BrokerError:
                await asyncio.sleep(0.1)


async def test_all_choices(client: Headrace, owner: Owner) -> None:
    """It ends when every choice has; the last result of each says how many there are. One can be read alone."""
    await owner.store(0, 3, final=True, choice=1, choices=2)
    both, one = Reader(client, "r1"), Reader(client, "r1", choice=1)
    await one.end()
    assert one.text == text_of(0, 3)
    await both.until_tokens(3)
    assert not both.task.done()
    await owner.store(0, 2, final=True, choices=2)
    await both.end()
    assert {chunk.choice: chunk.text for chunk in both.chunks} == {0: text_of(0, 2), 1: text_of(0, 3)}
    none = Reader(client, "r1", choice=2)
    with pytest.raises(RequestFault, match="the answer has 2 choices"):
        await none.end()


async def test_its_fault(client: Headrace, owner: Owner) -> None:
    """An answer that ended with a fault ends so for everybody who reads it."""
    await owner.store(0, 3)
    await owner.fail(Fault("poison", "three workers died of it"))
    reader = Reader(client, "r1")
    with pytest.raises(RequestFault, match="poison"):
        await reader.end()
    assert reader.text == text_of(0, 3)


async def test_what_is_not_stored_any_more(client: Headrace, owner: Owner) -> None:
    """The beginning is gone: no text with a hole, a fault that says so; from where it is stored it can be read."""
    await owner.store(5, 9)
    await owner.store(9, 10, final=True)
    with pytest.raises(RequestFault, match="lost_state"):
        await Reader(client, "r1").end()
    reader = Reader(client, "r1", from_token=5)
    await reader.end()
    assert reader.text == text_of(5, 10)


async def test_an_unknown_request(client: Headrace) -> None:
    """Nothing of this tenant waits: after 10 s it is clear that no answer will come. Or after one's own limit."""
    own = Reader(client, "r1", patience_s=1)
    with pytest.raises(RequestFault, match="lost_state: nothing is stored of it"):
        await own.end()
    with pytest.raises(RequestFault, match="lost_state: nothing is stored of it"):
        await Reader(client, "r1").end()


@pytest.mark.parametrize("subject", [subjects.request("default", "m"), subjects.ticket("m", "default")])
async def test_a_request_that_is_still_queued(
    client: Headrace, connection: Connection, owner: Owner, monkeypatch: pytest.MonkeyPatch, subject: str
) -> None:
    """While something of the tenant waits the answer may still come, however long that takes; others' do not count."""
    monkeypatch.setattr("broker.patience.LEAST_S", 0.0)
    monkeypatch.setattr("broker.patience.SILENCE_S", 0.2)
    await Publisher(connection).publish(subject.replace("default", "other"), b"x")
    with pytest.raises(RequestFault, match="lost_state"):
        await Reader(client, "r1").end()
    await Publisher(connection).publish(subject, b"x")
    reader = Reader(client, "r1")
    ended = await asyncio.wait({reader.task}, timeout=2)
    assert not ended[0], "given up although the request may be the one that waits"
    await owner.store(0, 2, final=True)
    await reader.end()
    assert reader.text == text_of(0, 2)


@pytest.mark.parametrize("options", [{"from_token": -1}, {"from_text": -1}, {"choice": -1}])
async def test_wrong_arguments(client: Headrace, options: dict[str, int]) -> None:
    """Said before anything is asked of the broker."""
    with pytest.raises(RequestFault, match="may not be negative"):
        await Reader(client, "r1", **options).end()
    with pytest.raises(RequestFault, match="no request id"):
        await Reader(client, "a.*").end()


async def test_a_reader_that_pauses(client: Headrace, owner: Owner) -> None:
    """More came meanwhile than is kept for a slow reader: it costs nobody anything, and the text is whole.

    It goes on at once, not after a time of silence.
    """
    chunks = client.attach("r1")
    await owner.store(0, 1)
    first = await anext(chunks)
    count = BACKLOG + 300
    for number in range(1, count):
        await owner.store(number, number + 1, encoding="msgpack", final=number == count - 1)
    async with asyncio.timeout(4):
        rest = [chunk async for chunk in chunks]
    assert "".join(chunk.text for chunk in [first, *rest]) == text_of(0, count)
    await chunks.aclose()


async def test_an_id_of_another_session_is_followed_at_once(
    client: Headrace, connection: Connection, topology: Topology
) -> None:
    """The broker says that it has this request already: what is stored comes at once, then what comes live."""
    await Registry(connection).publish_model(CARD, {})
    await Publisher(connection).publish(subjects.request("default", "m"), b"x", message_id="default.again")
    owner = Owner(connection, topology, "again")
    await owner.store(0, 3)
    chunks = client.stream(prompt="x", model="m", request_id="again")
    async with asyncio.timeout(4):
        first = await anext(chunks)
        await owner.store(3, 6, final=True)
        rest = [chunk async for chunk in chunks]
    assert "".join(chunk.text for chunk in [first, *rest]) == text_of(0, 6)
    await chunks.aclose()
