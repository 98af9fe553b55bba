"""No room at the broker: callers hear `busy` at once, what was accepted waits and is lost nowhere, and goes on."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from broker import subjects
from broker.connection import BrokerOptions, Connection
from broker.jetstream_api import call
from broker.publisher import Full, Publisher
from broker.results import ResultHistory, filling
from broker.server import MIB, EmbeddedServer
from headrace import Headrace, RequestFault
from load.pipeline import Pipeline
from load.simulated_truth import prompt_of
from tests.acceptance.processes import deaths, events
from tests.acceptance.streams import Stream, begin, begun, ended
from tests.acceptance.waiting import until

pytestmark = pytest.mark.timeout(180)

STORE = 64 * MIB
STEP_MS = 25
STREAMS = 10
TOKENS = 200
SMALL = {
    "partitions": 1,
    "max_request_bytes": 100_000,
    **dict.fromkeys(("requests_max_bytes", "tickets_max_bytes", "results_max_bytes"), 4 * MIB),
    **dict.fromkeys(
        ("journal_max_bytes", "dead_max_bytes", "models_max_bytes", "cancelled_max_bytes", "responses_max_bytes"), MIB
    ),
    "artifacts_max_bytes": 8 * MIB,
}


@pytest_asyncio.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    """A broker with little storage."""
    running = await EmbeddedServer.start(max_file_store=STORE)
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def connection(server: EmbeddedServer) -> AsyncIterator[Connection]:
    """Of somebody who uses the same broker."""
    opened = await Connection.open(BrokerOptions(url=server.url, name="somebody else"))
    yield opened
    await opened.close()


@asynccontextmanager
async def pipeline_on(server: EmbeddedServer, folder: Path, *arguments: str) -> AsyncGenerator[Pipeline]:
    """A pipeline with small streams. Its end has to be a clean one, and no process may have died meanwhile."""
    options = ["--nats-url", server.url, "--engine", "simulated", "--set", f"inference.simulated_step_ms={STEP_MS}"]
    for name, value in SMALL.items():
        options += ["--set", f"topology.{name}={value}"]
    pipeline = await asyncio.to_thread(Pipeline, folder, [*options, *arguments])
    try:
        yield pipeline
    finally:
        status = await asyncio.to_thread(pipeline.stop)
    assert status == 0, pipeline.output[-3000:]
    assert deaths(pipeline) == []


async def expect_busy(client: Headrace, number: int) -> None:
    """The next request is refused, and at once."""
    asked = time.monotonic()
    with pytest.raises(RequestFault) as raised:
        await client.complete(prompt=prompt_of(number), max_tokens=4, request_id=f"busy{number}")
    assert raised.value.code == "busy"
    assert time.monotonic() - asked < 5


async def fill(connection: Connection, subject: str, sizes: list[int]) -> str:
    """Publishes messages of these sizes until one is refused; how."""
    for size in sizes:
        try:
            await Publisher(connection).publish(subject, bytes(size))
        except Full as error:
            return str(error)
    return "not refused"


async def stalled(streams: list[Stream]) -> None:
    """Returns once nothing of any of these answers has come for two seconds."""
    seen, since = 0, time.monotonic()
    while time.monotonic() - since < 2:
        count = sum(len(stream.told.ids) for stream in streams)
        if count != seen:
            seen, since = count, time.monotonic()
        assert not all(stream.done.done() for stream in streams), "they went on"
        await asyncio.sleep(0.1)


async def test_a_full_store(server: EmbeddedServer, connection: Connection, tmp_path: Path) -> None:
    """Somebody else's stream takes all storage in mid-answer: the next is `busy`, the others wait and end right."""
    async with pipeline_on(server, tmp_path) as pipeline, Headrace(server.url) as client:
        foreign = {"name": "FOREIGN", "subjects": ["foreign.>"], "storage": "file"}
        await call(connection, "STREAM.CREATE.FOREIGN", foreign)
        streams = [begin(client, number, TOKENS) for number in range(STREAMS)]
        await begun(streams)
        assert "10023" in await fill(connection, "foreign.x", [MIB] * (STORE // MIB + 1))
        await expect_busy(client, 100)
        await stalled(streams)
        await asyncio.sleep(5)
        await expect_busy(client, 101)
        assert not any(stream.done.done() and stream.done.exception() for stream in streams)
        await call(connection, "STREAM.PURGE.FOREIGN")
        await ended(streams)
        await ended([begin(client, 200, TOKENS)])
        assert len(pipeline.log_of("")) < 500_000, "the log tells it, but not without end"


async def test_a_full_journal(server: EmbeddedServer, connection: Connection, tmp_path: Path) -> None:
    """Nobody reads the journal and it fills: the worker keeps what it has, and all is right once there is an owner."""
    async with pipeline_on(server, tmp_path, "--replicas", "postprocess=0") as pipeline, Headrace(server.url) as client:
        streams = [begin(client, number, TOKENS) for number in range(STREAMS)]
        assert "10077" in await fill(connection, subjects.journal(0), [50_000] * 40)
        await asyncio.sleep(8)
        assert not any(stream.done.done() for stream in streams)
        await asyncio.to_thread(pipeline.start_stage, "postprocess")
        await ended(streams)


async def test_full_results_refuse_new_answers_alone(
    server: EmbeddedServer, connection: Connection, tmp_path: Path
) -> None:
    """RESULTS close to its limit with young results: a new request is `busy`, the open answers end and stay whole."""
    async with pipeline_on(server, tmp_path) as pipeline, Headrace(server.url) as client:
        streams = [begin(client, number, TOKENS) for number in range(STREAMS)]
        await begun(streams)
        while (await filling(connection, 0)).part < 0.86:
            await Publisher(connection).publish(subjects.result(0, "other", "s", "x"), bytes(20_000))
        await until(lambda: _busy(client), "busy")
        await until(lambda: bool(events(pipeline, "preprocess", "preprocess.results_full")), "a line that says why")
        await ended(streams)
        await expect_busy(client, 100)
        history = ResultHistory(connection, 0)
        for stream in streams:
            ids = list[int]()
            for result in await history.of("default", "*", stream.told.id):
                assert result.token_from <= len(ids), "a part of it was dropped"
                ids += result.ids[len(ids) - result.token_from :]
            assert ids == stream.told.ids
        await call(connection, "STREAM.PURGE.RESULTS_0")
        await until(lambda: _answered(client), "room again")


_asked = iter(range(1000, 2000))


async def _busy(client: Headrace) -> bool:
    return not await _answered(client)


async def _answered(client: Headrace) -> bool:
    """Whether a short request gets an answer, and not `busy`."""
    try:
        await client.complete(prompt=prompt_of(1), max_tokens=1, request_id=f"asked{next(_asked)}")
    except RequestFault as error:
        if error.code == "busy":
            return False
        raise
    return True
