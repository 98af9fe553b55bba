"""A worker whose link to the broker is cut: its answers go on elsewhere, and what it says later has no effect."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from headrace import Headrace
from load.link import Link
from load.pipeline import Pipeline, terminate
from tests.acceptance.streams import begin, begun, ended
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import Wiretap, listening

pytestmark = pytest.mark.timeout(180)

TICKET_ACK_WAIT_S = 5.0
STEP = {"engine": "simulated", "simulated_step_ms": "5"}

numbers = itertools.count(1)
"""Every request of this file gets one of its own."""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One process of each stage, whose worker stays connected."""
    arguments = ["--engine", "simulated", "--set", "inference.simulated_step_ms=5"]
    arguments += ["--set", f"topology.ticket_ack_wait_s={TICKET_ACK_WAIT_S}"]
    running = Pipeline(tmp_path_factory.mktemp("cut"), arguments)
    yield running
    assert running.stop() == 0, running.output[-3000:]


@pytest_asyncio.fixture
async def link(pipeline: Pipeline) -> AsyncIterator[Link]:
    """The only way to the broker of a second worker; made whole again before that worker is told to stop."""
    broker = urlsplit(pipeline.url)
    made = Link(str(broker.hostname), int(broker.port or 0))
    await made.start()
    settings = {**STEP, "nats.url": f"nats://127.0.0.1:{made.port}"}
    worker = await asyncio.to_thread(pipeline.start_stage, "inference", **settings)
    yield made
    await made.restore()
    status = await asyncio.to_thread(terminate, worker)
    await made.close()
    assert status == 0, "the worker has lived through it"


@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        pytest.param("freeze", 3.5, id="frozen-for-longer-than-a-silence"),
        pytest.param("freeze", TICKET_ACK_WAIT_S + 2, id="frozen-for-longer-than-the-ack-wait", marks=pytest.mark.long),
        pytest.param("sever", TICKET_ACK_WAIT_S + 2, id="severed"),
        pytest.param("freeze", 20, id="frozen-until-the-client-gives-up", marks=pytest.mark.long),
    ],
)
async def test_a_worker_cut_off(pipeline: Pipeline, link: Link, how: str, seconds: float) -> None:
    """Frozen it does not even know; severed it tries to come back. Its tokens come late, or never: all texts right.

    Back again it serves as before, the same process.
    """
    async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap:
        await until(lambda: len(tap.alive) == 2, "both workers")
        streams = [begin(client, next(numbers), 300 * round(seconds + 3)) for _ in range(8)]
        await begun(streams)
        await until(lambda: len(+tap.tokens) == 2, "both workers at work")
        at = dict(tap.at)
        link.freeze() if how == "freeze" else link.sever()
        await asyncio.sleep(seconds)
        connected = {status.worker for status in tap.alive}
        cut_off = [key for key, worker in at.items() if worker not in connected]
        assert cut_off, "it had nothing"
        assert all(tap.opens[key] > 1 for key in cut_off), "not all of it went elsewhere"
        await link.restore()
        gap_s = await ended(streams)
        await tap.settled()
        assert [await tap.terminal(stream.told.id) for stream in streams] == ["length"] * 8
        await until(lambda: both_serve(tap, client), "both workers at work again", seconds=60)
        assert len(tap.workers) == 2, "the same two"
    print(f"{how} for {seconds} s: longest gap {gap_s:.2f} s")


async def both_serve(tap: Wiretap, client: Headrace) -> bool:
    tap.forget()
    await ended([begin(client, next(numbers), 4) for _ in range(8)])
    return set(+tap.tokens) == set(tap.workers)
