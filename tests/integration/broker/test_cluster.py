"""A cluster of three: any server may die, at any moment, and everything goes on by itself, in order and once."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from broker.cluster_server import ClusterServer
from broker.connection import BrokerOptions, Connection, Unavailable
from broker.direct_get import all_of_subject
from broker.jetstream_api import call, list_all
from broker.publisher import Publisher
from broker.registry import Registry
from broker.results import ResultHistory, ResultWriter
from broker.topology import Topology, ensure_schedule_consumer, initialise, verify
from schemas.model import ModelCard
from schemas.ticket import EngineSampling
from tests.integration.broker.cluster_life import CLUSTERED, Life, result_of

pytestmark = pytest.mark.timeout(180)

PARENT = """
import asyncio
from broker.cluster_server import ClusterServer

async def main():
    cluster = await ClusterServer.start()
    print("servers", *(server.pid for server in cluster.servers), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""
BUSY = ("REQUESTS", "TICKETS", "JOURNAL_0", "RESULTS_1", "KV_hr_partitions", "KV_hr_cancelled")


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[ClusterServer]:
    """Three servers of this test's own."""
    running = await ClusterServer.start()
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def connection(cluster: ClusterServer) -> AsyncIterator[Connection]:
    """A stage's connection: it knows all three servers and is connected to one."""
    opened = await Connection.open(BrokerOptions(url=cluster.url, name="test"), patience_s=10)
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def topology(connection: Connection) -> Topology:
    """Streams of three replicas."""
    return await initialise(connection, CLUSTERED)


@pytest_asyncio.fixture
async def life(connection: Connection, topology: Topology) -> AsyncIterator[Life]:
    """Everything that stages do, running."""
    running = Life(connection)
    await running.start()
    yield running
    await running.abandon()


async def test_everything_has_three_copies(connection: Connection, topology: Topology) -> None:
    """With `replicas` 3 every stream, bucket and durable consumer has two replicas; init again is a check."""
    await ensure_schedule_consumer(connection, "m")
    streams = await list_all(connection, "STREAM.LIST", "streams")
    assert {stream["config"]["num_replicas"] for stream in streams} == {3}
    assert len(streams) == 2 * CLUSTERED.partitions + 8
    for consumer in ("REQUESTS.preprocess", "TICKETS.schedule_m"):
        copies = (await call(connection, f"CONSUMER.INFO.{consumer}"))["cluster"]
        assert copies["leader"]
        assert len(copies["replicas"]) == 2
    assert await initialise(connection, CLUSTERED) == topology
    assert await verify(connection, patience_s=0) == topology


async def test_models_and_their_files(cluster: ClusterServer, connection: Connection, topology: Topology) -> None:
    """Card and files, put through one server, are read through each of the others."""
    card = ModelCard(
        slug="m",
        name="m",
        engine="x",
        context_length=8,
        vocab_size=8,
        eos_ids=[0],
        defaults=EngineSampling(max_tokens=0),
    )
    await Registry(connection).publish_model(card, {"tokenizer.json": b"x" * 300_000})
    for server in cluster.servers:
        reader = await Connection.open(BrokerOptions(url=server.url))
        async with asyncio.timeout(10):
            while not (found := await Registry(reader).models()):  # noqa: ASYNC110 - a replica lags for a moment
                await asyncio.sleep(0.01)
        assert await Registry(reader).files(found[0]) == {"tokenizer.json": b"x" * 300_000}
        await reader.close()


async def test_they_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """After SIGKILL of their parent all three are gone within seconds."""
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    line = ""
    while not line.startswith("servers "):
        line = (await asyncio.wait_for(parent.stdout.readline(), 60)).decode()
    servers = [psutil.Process(int(pid)) for pid in line.split()[1:]]
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, servers, timeout=15)
    assert alive == []


async def test_any_server_of_the_list_will_do(cluster: ClusterServer) -> None:
    """A URL with several servers, spaces or not, connects through one that is there; dead ones do not matter."""
    await cluster.servers[0].kill()
    url = f"nats://127.0.0.1:1, {cluster.servers[0].url} ,{cluster.servers[1].url}"
    connection = await Connection.open(BrokerOptions(url=url), patience_s=10)
    await connection.prove_subscriptions()
    await connection.close()


async def test_what_was_acknowledged_is_in_every_history(
    cluster: ClusterServer, connection: Connection, topology: Topology
) -> None:
    """An owner that looks for stored results finds all that was acknowledged, whichever server it is connected to.

    A follower that lags answers direct gets, too: a result missing there would let a request begin anew, with double
    text. Read by direct get alone, some 20 to 60 of these 900 histories lack their newest result.
    """
    readers = [await Connection.open(BrokerOptions(url=server.url)) for server in cluster.servers]
    writer, stale = ResultWriter(connection, 1), 0
    for number in range(300):
        for reader in readers:
            history = ResultHistory(reader, 1)
            before = len(await history.of("t", "s", f"r{number}"))
            await writer.publish_round([result_of(number, before)])
            stale += len(await all_of_subject(reader, "RESULTS_1", result_of(number, 0).subject)) == before
            assert await history.exists(result_of(number, 0).subject)
            assert len(await history.of("t", "*", f"r{number}")) == before + 1
    print(f"{stale} of 900 direct gets were stale")
    for reader in readers:
        await reader.close()


@pytest.mark.parametrize(
    "victim",
    [
        "leads most",
        pytest.param("leads the cluster", marks=pytest.mark.long),
        pytest.param("ours", marks=pytest.mark.long),
    ],
)
async def test_a_killed_server_stops_nothing(cluster: ClusterServer, life: Life, victim: str) -> None:
    """D23: SIGKILL of a server, its time away, its return: pulls, readers, watches, leases, publishes, gets go on.

    The journal is read whole, in order and each entry once; every request comes through; no lease is lost. A stage
    that starts at that moment waits for its streams, and does not take them for missing.
    """
    number = await _victim(cluster, life.connection, victim)
    await cluster.servers[number].kill()
    starting = asyncio.create_task(_verify_apart(cluster))
    took = await life.goes_on()
    print(f"{victim}: all go on after {took:.1f} s")
    assert await starting == CLUSTERED.partitions
    await cluster.servers[number].restart()
    await _until_current(cluster, number)
    await life.goes_on()
    await life.stop()
    _nothing_is_lost(life)


async def test_two_of_three_are_dead(cluster: ClusterServer, life: Life) -> None:
    """Without a majority nothing is stored and everybody waits, or hears so in time; with one more it goes on."""
    first, second = await cluster.leader_of("JOURNAL_0"), await cluster.meta_leader()
    second = second if second != first else (first + 1) % 3
    for number in (first, second):
        await cluster.servers[number].kill()
    other = await Connection.open(BrokerOptions(url=cluster.url), patience_s=10)
    for _ in range(2):
        asked = time.monotonic()
        with pytest.raises(Unavailable):
            await Publisher(other).publish("hr.dead.m", b"", message_id="the same one", timeout_s=2)
        with pytest.raises(Unavailable):
            await verify(other, patience_s=1)
        assert time.monotonic() - asked < 20
    await other.close()
    appended, published = life.appended, life.published
    await cluster.servers[second].restart()
    took = await life.goes_on(within_s=60)
    print(f"with a majority again: all go on after {took:.1f} s")
    assert life.appended > appended
    assert life.published > published
    await cluster.servers[first].restart()
    await _until_current(cluster, first)
    await life.stop()
    _nothing_is_lost(life)


def _nothing_is_lost(life: Life) -> None:
    assert life.read == list(range(life.appended))
    assert set(life.handled) == set(range(life.published))
    assert life.unfinished == []
    assert life.owned == {0, 1}


async def _victim(cluster: ClusterServer, connection: Connection, victim: str) -> int:
    if victim == "leads the cluster":
        return await cluster.meta_leader()
    if victim == "leads most":
        leaders = [await cluster.leader_of(stream) for stream in BUSY]
        return max(range(3), key=leaders.count)
    assert connection.client.connected_url is not None
    return [server.url for server in cluster.servers].index(connection.client.connected_url.geturl())


async def _verify_apart(cluster: ClusterServer) -> int:
    starting = await Connection.open(BrokerOptions(url=cluster.url), patience_s=30)
    try:
        return (await verify(starting, patience_s=40)).partitions
    finally:
        await starting.close()


async def _until_current(cluster: ClusterServer, number: int) -> None:
    async with asyncio.timeout(60):
        while not await cluster.current(number):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.1)
