"""A broker cluster of three under the whole pipeline: servers die in mid-answer, and every answer is right."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest
import pytest_asyncio

from broker.cluster_server import ClusterServer
from broker.server import EmbeddedServer
from headrace import Headrace
from load.pipeline import Pipeline
from tests.acceptance.conftest import TWO_OF_EACH
from tests.acceptance.processes import deaths
from tests.acceptance.streams import begin, begun, ended
from tests.acceptance.waiting import until

pytestmark = pytest.mark.timeout(240)

STREAMS = 20
TOKENS = 300
STEP_MS = 25
TOPOLOGY = ("topology.partitions=2", "topology.replicas=3")
BUSY = ("TICKETS", "JOURNAL_0", "JOURNAL_1", "RESULTS_0", "RESULTS_1", "KV_hr_partitions")


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[ClusterServer]:
    """Three servers of this test's own."""
    running = await ClusterServer.start()
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def clustered(cluster: ClusterServer, tmp_path: Path) -> AsyncIterator[Pipeline]:
    """Two replicas of every stage on it. Their end has to be a clean one, and none may have died."""
    arguments = ["--nats-url", cluster.url, "--engine", "simulated", *TWO_OF_EACH]
    for setting in (*TOPOLOGY, f"inference.simulated_step_ms={STEP_MS}"):
        arguments += ["--set", setting]
    pipeline = await asyncio.to_thread(Pipeline, tmp_path, arguments)
    yield pipeline
    assert await asyncio.to_thread(pipeline.stop) == 0, pipeline.output[-3000:]
    assert deaths(pipeline) == []


async def leads_most(cluster: ClusterServer) -> int:
    """The server whose death stops most."""
    leaders = [await cluster.leader_of(stream) for stream in BUSY]
    return max(range(3), key=leaders.count)


async def test_a_server_dies_in_mid_answer(cluster: ClusterServer, clustered: Pipeline) -> None:
    """SIGKILL of the server that leads most streams, 20 answers in progress: all right, and the next ones, too.

    Those begin while it is away and go on when it comes back.
    """
    async with Headrace(cluster.url) as client:
        streams = [begin(client, number, TOKENS) for number in range(STREAMS)]
        await begun(streams)
        victim = await leads_most(cluster)
        await cluster.servers[victim].kill()
        print(f"longest gap: {await ended(streams, 90):.1f} s")
        streams = [begin(client, 1000 + number, TOKENS) for number in range(STREAMS)]
        await begun(streams)
        await cluster.servers[victim].restart()
        await ended(streams, 90)
    assert clustered.run("status", "--nats-url", cluster.url).returncode == 0


async def all_current(cluster: ClusterServer) -> bool:
    """Whether every server has everything that the others have."""
    return all([await cluster.current(number) for number in range(3)])


async def killed_for(server: EmbeddedServer, seconds: float) -> None:
    """SIGKILL, and started again after so long."""
    await server.kill()
    await asyncio.sleep(seconds)
    await server.restart()


async def stopped_for(server: EmbeddedServer, seconds: float) -> None:
    """SIGSTOP for so long: it wakes up as the leader that it is no longer, with clients that did not leave it yet."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("away", "seconds"), [(killed_for, 2.0), (killed_for, 10.0), (stopped_for, 7.0), (stopped_for, 14.0)]
)
async def test_one_after_the_other(
    cluster: ClusterServer,
    clustered: Pipeline,
    away: Callable[[EmbeddedServer, float], Coroutine[None, None, None]],
    seconds: float,
) -> None:
    """Six times a server is away in mid-answer, each time another one than the last: every answer is right."""
    async with Headrace(cluster.url) as client:
        for number in range(6):
            streams = [begin(client, 1000 * number + each, TOKENS) for each in range(STREAMS)]
            await begun(streams)
            gone = asyncio.create_task(away(cluster.servers[number % 3], seconds))
            await ended(streams, 90)
            await gone
            await until(lambda: all_current(cluster), "all have caught up", seconds=60)
