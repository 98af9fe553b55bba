"""`headrace init`, `status` and `models` against a real broker."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from broker import subjects
from broker.client import Headrace
from broker.connection import Connection, Inbound
from broker.direct_get import all_of_subject
from broker.jetstream_api import call, list_all
from broker.publisher import Publisher
from broker.registry import Registry
from broker.topology import Topology
from schemas.codec import decode, encode
from schemas.control import WorkerStatus
from schemas.grant import Credits
from schemas.model import ModelCard
from schemas.request import Request
from schemas.result import Result
from schemas.ticket import EngineSampling
from stages.observing.pipeline import Observer

ROOT = Path(__file__).parents[3]
CARD = ModelCard(
    slug="m",
    name="m",
    engine="simulated",
    context_length=64,
    vocab_size=8,
    eos_ids=[],
    defaults=EngineSampling(max_tokens=0),
)


async def headrace(*arguments: str, **environ: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stages.cli",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **environ},
    )
    out, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def heartbeat(sent: int, tokens_out: int) -> bytes:
    status = WorkerStatus(
        worker="w1", model="m", state="ready", credits=Credits(2, 100), sent=sent, tokens_out=tokens_out
    )
    return encode(status)


@pytest_asyncio.fixture
async def observer(connection: Connection, topology: Topology) -> AsyncIterator[Observer]:
    observer = Observer(connection)
    await observer.start(5)
    yield observer
    await observer.close()


async def test_status_counts_what_waits_and_how_fast_it_comes(
    observer: Observer, connection: Connection, topology: Topology
) -> None:
    """Depth of the queues, lag and owner of every partition, requests per second since the look before."""
    before = await observer.snapshot(0.1)
    assert before.depths.streams["REQUESTS"].messages == 0
    assert before.requests_per_s == 0
    for number in range(5):
        await Publisher(connection).publish(subjects.request("t", "m"), b"x", message_id=f"t.{number}")
    await Publisher(connection).publish(subjects.journal(1), b"x")
    after = await observer.snapshot(0.2)
    assert after.depths.streams["REQUESTS"].messages == 5
    assert after.depths.consumers["preprocess"].pending == 5
    assert 5 < after.requests_per_s < 50
    assert [(each.number, each.lag) for each in after.partitions] == [(0, 0), (1, 1), (2, 0)]
    assert all(each.owner == "" for each in after.partitions)


async def test_status_hears_workers_and_forgets_silent_ones(observer: Observer, connection: Connection) -> None:
    """A worker is shown while it beats; broken heartbeats cost nothing."""
    await connection.publish(subjects.worker("m", "w1"), heartbeat(1, 100))
    await connection.publish(subjects.worker("m", "w2"), b"\xc1 no message")
    first = await observer.snapshot(0.2)
    assert [worker.worker for worker in first.workers] == ["w1"]
    await connection.publish(subjects.worker("m", "w1"), heartbeat(2, 150))
    second = await observer.snapshot(0.2)
    assert 50 < second.tokens_per_s < 300
    await asyncio.sleep(2.0)
    assert (await observer.snapshot(0.1)).workers == []


async def test_init_makes_the_streams_once_and_names_what_differs(broker_url: str, connection: Connection) -> None:
    """A second time it verifies; with other limits it changes nothing, says where they differ, and fails."""
    for stream in await list_streams(connection):
        await delete_stream(connection, stream)
    made = await headrace("init", "--partitions", "2", "--nats-url", broker_url)
    assert made[0] == 0, made[2]
    assert "2 partitions" in made[1]
    assert (await headrace("init", "--partitions", "2", HEADRACE_NATS_URL=broker_url))[0] == 0
    status, _, error = await headrace("init", "--partitions", "2", "--nats-url", broker_url, "--set", "replicas=3")
    assert status == 1
    assert "num_replicas" in error
    wrong = await headrace("init", "--set", "partition=2", "--nats-url", broker_url)
    assert (wrong[0], "did you mean partitions?" in wrong[2]) == (2, True)


async def test_status_and_models_as_json(broker_url: str, topology: Topology) -> None:
    """For programs: one object, one list."""
    status, out, error = await headrace("status", "--json", "--nats-url", broker_url)
    assert status == 0, error
    found = json.loads(out)
    assert found["depths"]["streams"]["REQUESTS"]["messages"] == 0
    assert len(found["partitions"]) == topology.partitions
    status, out, error = await headrace("models", "--json", "--nats-url", broker_url)
    assert (status, out) == (0, "[]\n"), error


async def test_a_question_to_a_model_that_nobody_serves_is_a_failure(broker_url: str, topology: Topology) -> None:
    """After the id of the request, one line that names the reason."""
    status, out, error = await headrace("ask", "Hello?", "--id", "ask-1", "--nats-url", broker_url)
    assert (status, out) == (1, "")
    said, reason = error.splitlines()
    assert said == "request ask-1"
    assert reason.startswith("headrace: model_not_found")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_question_that_nobody_takes_says_so(
    broker_url: str, connection: Connection, topology: Topology, number: signal.Signals, status: int
) -> None:
    """While no worker of the model is heard, a person is told what they wait for; leaving cancels the request."""
    await Registry(connection).publish_model(CARD, {})
    process = await asking("ask-1", broker_url)
    assert process.stderr is not None
    async with asyncio.timeout(30):
        said = [(await process.stderr.readline()).decode() for _ in range(2)]
        assert said == ["request ask-1\n", "headrace: no worker serves m yet, waiting\n"]
        process.send_signal(number)
        out, _ = await process.communicate()
    assert (process.returncode, out) == (status, b"")
    assert len(await all_of_subject(connection, "KV_hr_cancelled", "$KV.hr_cancelled.default.*")) == 1


async def test_an_answer_that_nobody_reads_on_is_cancelled(
    broker_url: str, connection: Connection, topology: Topology
) -> None:
    """`headrace ask … | head`: the request ends with the pipe, and quietly."""
    await Registry(connection).publish_model(CARD, {})
    asked: asyncio.Queue[Inbound] = asyncio.Queue()
    await connection.subscribe("hr.request.default.m", asked.put)
    unread, stdout = os.pipe()
    process = await asking("ask-2", broker_url, stdout)
    os.close(stdout)
    os.close(unread)
    async with asyncio.timeout(30):
        session = decode(Request, (await asked.get()).data).session
        piece = encode(Result(choice=0, attempt=1, at=1, token_from=0, token_to=1, ids=[1], text="Pa"))
        for partition in range(topology.partitions):
            await connection.request(f"hr.result.{partition}.default.{session}.ask-2", piece, 5)
        assert process.stderr is not None
        assert await process.stderr.read() == b"request ask-2\n"
        assert await process.wait() == 1
    assert len(await all_of_subject(connection, "KV_hr_cancelled", "$KV.hr_cancelled.default.*")) == 1


async def asking(request_id: str, broker_url: str, stdout: int = asyncio.subprocess.PIPE) -> asyncio.subprocess.Process:
    """A `headrace ask`, begun."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stages.cli", "ask", "Hello?", "--id", request_id, "--nats-url", broker_url),
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )


async def test_a_worker_that_is_busy_is_no_reason_to_say_anything(
    broker_url: str, connection: Connection, topology: Topology
) -> None:
    """A worker is heard: that it takes its time is no news."""
    await Registry(connection).publish_model(CARD, {})
    async with Headrace(broker_url) as client:
        assert not await client.is_served("", within_s=0.1)
        heard = asyncio.create_task(client.is_served("m", within_s=30))
        while not heard.done():
            await connection.publish(subjects.worker("m", "w1"), heartbeat(1, 0))
            await asyncio.sleep(0.05)
        assert heard.result()


async def list_streams(connection: Connection) -> list[str]:
    return [stream["config"]["name"] for stream in await list_all(connection, "STREAM.LIST", "streams")]


async def delete_stream(connection: Connection, name: str) -> None:
    await call(connection, f"STREAM.DELETE.{name}")
