"""Requests that kill their workers end in DEAD after the third; what merely restarts around a request says nothing."""

import asyncio
import base64
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import subjects
from broker.jetstream_api import call
from broker.replay import stored_results
from headrace import Headrace, RequestFault
from load.pipeline import Pipeline
from load.simulated_truth import prompt_of
from schemas.codec import decode
from schemas.control import DeadLetter
from schemas.poison import POISON_FROM
from schemas.result import Result
from schemas.ticket import Ticket
from tests.acceptance.processes import deaths, events, processes_of, stopped
from tests.acceptance.streams import begin, begun, ended
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import TENANT, Wiretap, listening

pytestmark = pytest.mark.timeout(240)

POISON = 300
"""A token id that no prompt of `prompt_of` has."""

ACK_WAIT_S = 2.0


def pipeline_of(folder: Path, replicas: dict[str, int], settings: dict[str, object]) -> Pipeline:
    arguments = ["--engine", "simulated"]
    for stage, count in replicas.items():
        arguments += ["--replicas", f"{stage}={count}"]
    for name, value in settings.items():
        arguments += ["--set", f"{name}={value}"]
    return Pipeline(folder, arguments)


@pytest.fixture
def three_workers(tmp_path: Path) -> Iterator[Pipeline]:
    """Three workers that die of a prompt with the token `POISON`, and two schedulers."""
    settings: dict[str, object] = {"inference.simulated_step_ms": 5, "inference.simulated_poison": POISON}
    pipeline = pipeline_of(tmp_path, {"inference": 3, "schedule": 2}, settings)
    yield pipeline
    assert pipeline.stop() == 0, pipeline.output[-3000:]


@pytest.fixture
def one_worker(tmp_path: Path) -> Iterator[Pipeline]:
    """One worker with one slot, which takes seconds for a long prompt, and drains within one."""
    settings: dict[str, object] = {
        "inference.simulated_step_ms": 5,
        "inference.simulated_prefill_us": 1000,
        "inference.slots": 1,
        "process.grace_s": 2,
        "topology.ticket_ack_wait_s": ACK_WAIT_S,
    }
    pipeline = pipeline_of(tmp_path, {"inference": 1}, settings)
    yield pipeline
    assert pipeline.stop() == 0, pipeline.output[-3000:]


async def test_a_poisonous_request_takes_three_workers_and_no_neighbour(three_workers: Pipeline) -> None:
    """One terminal fault, one letter with three attempts; the third ran alone; every neighbour's text is right."""
    url = three_workers.url
    async with Headrace(url) as client, listening(url) as tap:
        neighbours = [begin(client, number, 1000) for number in range(12)]
        await begun(neighbours)
        poison = begin(client, 666, 50, prompt=[*prompt_of(666), POISON])
        with pytest.raises(RequestFault, match="3 workers in a row died") as fault:
            async with asyncio.timeout(60):
                await poison.done
        assert fault.value.code == "poison"
        await ended(neighbours)
        await tap.settled()
        key = f"{TENANT}.{poison.told.id}"
        assert await tap.terminal(poison.told.id) == "poison"
        assert [await tap.terminal(stream.told.id) for stream in neighbours] == ["length"] * 12
        letter = await the_letter(tap, key)
        assert letter.reason == fault.value.message
    counted = events(three_workers, "postprocess", "postprocess.attempt_died")
    of_the_request = [(one["worker"], one["attempt"]) for one in counted if one["request_id"] == key]
    assert of_the_request == [(attempt.worker, attempt.attempt) for attempt in letter.attempts]
    third = letter.attempts[2].worker
    assert [one["request_id"] for one in counted if one["worker"] == third] == [key], "it ran alone"
    died = [death for death in deaths(three_workers) if str(death["child"]).startswith("inference")]
    assert [death["status"] for death in died] == [-signal.SIGKILL] * 3


async def test_drains_do_not_count(one_worker: Pipeline) -> None:
    """The worker drains three times before the first token: each time the request comes to the next at token 0."""
    async with Headrace(one_worker.url) as client, listening(one_worker.url) as tap:
        stream = begin(client, 1, 20, prompt=prompt_of(1, 6000))
        for drains in range(1, 4):
            await until(lambda drains=drains: tap.opens[key_of(1)] == drains and tap.running > 0, "it runs", seconds=60)
            processes_of(one_worker, "inference")[0].send_signal(signal.SIGTERM)
            await until(lambda: tap.running == 0, "it is handed back", seconds=60)
        await ended([stream], seconds=90)
        await nothing_counted(tap, stream.told.id)


async def test_restarts_of_the_scheduler_do_not_count(one_worker: Pipeline) -> None:
    """It waits for the worker's one slot, and its scheduler is killed: opens at the same token that no worker saw."""
    async with Headrace(one_worker.url) as client, listening(one_worker.url) as tap:
        running = begin(client, 1, 4000)
        await begun([running], seconds=60)
        waiting = begin(client, 2, 50)
        await until(lambda: everything_is_held(tap), "the ticket is pulled", seconds=60)
        for kills in range(1, 4):
            processes_of(one_worker, "schedule")[0].send_signal(signal.SIGKILL)
            await until(lambda kills=kills: tap.opens[key_of(2)] >= kills, "it is opened again", seconds=60)
        assert not running.done.done(), "the worker was free too early to show anything"
        await ended([running, waiting], seconds=90)
        assert tap.opens[key_of(2)] >= 3
        for stream in (running, waiting):
            await nothing_counted(tap, stream.told.id)


def key_of(number: int) -> str:
    return f"{TENANT}.r{number}"


async def everything_is_held(tap: Wiretap) -> bool:
    return await tap.messages(subjects.TICKETS) == 2 == await tap.held(subjects.TICKETS)


async def results_of(tap: Wiretap, request_id: str) -> list[Result]:
    partition = subjects.partition_of(f"{TENANT}.{request_id}", tap.partitions)
    return await stored_results(tap.connection, partition, subjects.result(partition, TENANT, "*", request_id))


async def nothing_counted(tap: Wiretap, request_id: str) -> None:
    await tap.settled()
    assert await tap.terminal(request_id) == "length"
    assert [result.deaths for result in await results_of(tap, request_id) if result.deaths] == []
    assert await tap.messages(subjects.DEAD) == 0


async def the_letter(tap: Wiretap, key: str) -> DeadLetter:
    """The only one in DEAD; it is about this request, and holds its ticket."""
    assert await tap.messages(subjects.DEAD) == 1
    found = await call(tap.connection, f"STREAM.MSG.GET.{subjects.DEAD}", {"last_by_subj": subjects.dead("simulated")})
    letter = decode(DeadLetter, base64.b64decode(found["message"]["data"]))
    assert (letter.key, letter.choice, letter.subject) == (key, 0, subjects.ticket("simulated", TENANT))
    assert decode(Ticket, letter.payload).key == key
    assert [attempt.tokens for attempt in letter.attempts] == [0, 0, 0]
    return letter


async def test_pauses_do_not_count(tmp_path: Path) -> None:
    """Workers that stood still long enough to lose what they had, and then go on, did not die of it."""
    settings: dict[str, object] = {"inference.simulated_prefill_us": 4000, "inference.simulated_step_tokens": 64}
    pipeline = pipeline_of(tmp_path, {"inference": 2}, settings)
    async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap:
        stream = begin(client, 1, 20, prompt=prompt_of(1, 1500))
        for _ in range(POISON_FROM):
            opens = tap.opens[f"{TENANT}.{stream.told.id}"]
            await until(lambda: tap.running > 0, "a prefill")
            with stopped(*processes_of(pipeline, "inference")):
                await asyncio.sleep(2.6)
            await until(lambda before=opens: tap.opens[f"{TENANT}.{stream.told.id}"] > before, "the next attempt")
        await ended([stream])
        await tap.settled()
        assert await tap.terminal(stream.told.id) == "length"
    assert len(events(pipeline, "postprocess", "postprocess.attempt_died")) >= POISON_FROM
    assert deaths(pipeline) == []
    assert pipeline.stop() == 0, pipeline.output[-3000:]
