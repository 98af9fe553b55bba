"""SIGSTOP, long enough that others take over, then SIGCONT: what comes back disturbs nobody, and serves again."""

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from broker import subjects
from headrace import Headrace
from load.pipeline import Pipeline
from tests.acceptance.processes import STAGES, deaths, events, processes_of, stopped
from tests.acceptance.streams import Stream, begin, begun, ended
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import Wiretap, listening

pytestmark = pytest.mark.timeout(180)

BEYOND_LEASES_S = 4.0
"""Longer than a partition's lease (3 s), a worker's silence (2 s) and the ack wait of requests (2 s here)."""

TICKET_ACK_WAIT_S = 4.0
BEYOND_TICKETS_S = TICKET_ACK_WAIT_S + 2

numbers = itertools.count(1)
"""Every request of this file gets one of its own."""


def pipeline_with(folder: pytest.TempPathFactory, **settings: float) -> Iterator[Pipeline]:
    """Two of every stage, quick to hand requests out again; `topology__…` and `inference__…` are settings."""
    arguments = ["--engine", "simulated", *(text for stage in STAGES for text in ("--replicas", f"{stage}=2"))]
    chosen = {"inference__simulated_step_ms": 5, "topology__request_ack_wait_s": 2, **settings}
    for name, value in chosen.items():
        arguments += ["--set", f"{name.replace('__', '.')}={value}"]
    pipeline = Pipeline(folder.mktemp("zombies"), arguments)
    yield pipeline
    assert pipeline.stop() == 0, pipeline.output[-3000:]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """With the default ack wait of tickets: what a zombie holds is still its own by the broker's count."""
    yield from pipeline_with(tmp_path_factory)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """The broker hands out anew what a zombie holds; workers have four slots each, so that tickets have to wait."""
    yield from pipeline_with(tmp_path_factory, topology__ticket_ack_wait_s=TICKET_ACK_WAIT_S, inference__slots=4)


@pytest.mark.parametrize("stage", STAGES)
async def test_stopped_for_longer_than_leases(plain: Pipeline, stage: str) -> None:
    """In mid-answer. A worker goes on with what others have by then; a postprocess with partitions that others own;
    preprocess with requests that others have answered: all of it without effect.
    """
    await stop_one(plain, stage, BEYOND_LEASES_S, running=8, waiting=0)


@pytest.mark.parametrize("stage", [pytest.param("schedule", marks=pytest.mark.long), "inference"])
async def test_stopped_for_longer_than_the_ack_wait(impatient: Pipeline, stage: str) -> None:
    """With workers full: the tickets that it held, or had granted, were delivered to others; it forgets them."""
    await stop_one(impatient, stage, BEYOND_TICKETS_S, running=8, waiting=16)


async def stop_one(pipeline: Pipeline, stage: str, seconds: float, *, running: int, waiting: int) -> None:
    """Stops one process of `stage` in mid-answer, with requests that come meanwhile; then it wakes up."""
    async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap:
        streams = [begin(client, next(numbers), round(220 * (seconds + 2))) for _ in range(running)]
        await begun(streams)
        streams += [begin(client, next(numbers), 40) for _ in range(waiting)]
        if waiting:
            await until(lambda: holds(tap, len(streams)), "tickets in the schedulers' windows")
        zombie = processes_of(pipeline, stage)[0]
        with stopped(zombie):
            streams += [begin(client, next(numbers), 40) for _ in range(24 if not waiting else 0)]
            await no_ticket_goes_before_its_end(tap, streams[:running], seconds)
            took_over = await others_took_over(tap, stage, streams)
        await no_ticket_goes_before_its_end(tap, streams[:running], 1.0)
        assert not any(stream.done.done() for stream in streams[:running]), "too short to show anything"
        await ended(streams)
        await tap.settled()
        assert took_over or did_the_same_again(pipeline, stage), "nothing to disturb anybody with"
        assert [await tap.terminal(stream.told.id) for stream in streams] == ["length"] * len(streams)
        await until(lambda: all_serve(pipeline, tap, client), "every process at work again")
    assert not deaths(pipeline)


async def holds(tap: Wiretap, tickets: int) -> bool:
    return await tap.held(subjects.TICKETS) == tickets


async def no_ticket_goes_before_its_end(tap: Wiretap, streams: list[Stream], seconds: float) -> None:
    """For so long, none of the tickets of `streams`, which all run, is acknowledged: by a late ACK above all (D1)."""
    over_at = time.monotonic() + seconds
    while time.monotonic() < over_at:
        assert await tap.messages(subjects.TICKETS) >= len(streams)
        await asyncio.sleep(0.2)


async def others_took_over(tap: Wiretap, stage: str, streams: list[Stream]) -> bool:
    """Whether others have by now what the stopped process had: without that, its waking would show nothing."""
    if stage == "postprocess":
        return len(set(await tap.owners())) == 1
    if stage == "inference":
        return any(tap.opens[f"default.{stream.told.id}"] > 1 for stream in streams)
    return await tap.redelivered(subjects.TICKETS) > 0


def did_the_same_again(pipeline: Pipeline, stage: str) -> bool:
    """Whether preprocess made tickets of requests that had some already; a scheduler keeps what it holds for 15 s."""
    asked = [line["request_id"] for line in events(pipeline, "preprocess", "preprocess.ticketed")]
    return len(set(asked)) < len(asked) if stage == "preprocess" else stage == "schedule"


async def all_serve(pipeline: Pipeline, tap: Wiretap, client: Headrace) -> bool:
    """Whether a few more requests bring every process that ever became ready to work."""
    tap.forget()
    streams = [begin(client, next(numbers), 4) for _ in range(16)]
    await ended(streams)
    asked = {f"default.{stream.told.id}" for stream in streams}
    ticketed = events(pipeline, "preprocess", "preprocess.ticketed")
    at_work = {line["instance"] for line in ticketed if line["request_id"] in asked}
    at_work |= {*tap.grants, *+tap.tokens, *await tap.owners()}
    return at_work >= {line["instance"] for line in events(pipeline, "", "stage.ready")}
