"""One tenant floods the only worker: what that costs others, what is said of it, and who is refused."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import httpx
import pytest

from headrace import Headrace
from load.ending import ending
from load.pipeline import Pipeline
from load.simulated_truth import prompt_of
from tests.acceptance.conftest import running
from tests.acceptance.openai_clients import SIMULATED, question
from tests.acceptance.processes import events
from tests.acceptance.streams import Stream, begin, ended
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import listening

pytestmark = pytest.mark.timeout(120)

SLOTS, FLOOD, TOKENS = 2, 52, 100
STEP_S = 0.005
FLOOD_S = FLOOD / SLOTS * TOKENS * STEP_S
"""At the least."""

OLD_S = 3.0
"""By then what is left of the flood waits longer than a scheduler would hold a ticket for a better worker."""


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One simulated worker of two slots, and an edge. Its end has to be a clean one."""
    arguments = ["--engine", "simulated", "--replicas", "edge=1"]
    arguments += ["--set", f"inference.slots={SLOTS}", "--set", f"inference.simulated_step_ms={1000 * STEP_S}"]
    with running(tmp_path_factory.mktemp("single"), arguments) as pipeline:
        yield pipeline


async def test_a_flood(single: Pipeline) -> None:
    """Another tenant is answered meanwhile; the wait is told, and who has less time is refused at once, for nothing."""
    async with AsyncExitStack() as stack:
        loud = await stack.enter_async_context(Headrace(single.url))
        tap = await stack.enter_async_context(listening(single.url))
        flood = [begin(loud, number, TOKENS) for number in range(FLOOD)]
        await stack.enter_async_context(ending(*(stream.done for stream in flood)))
        began = time.monotonic()
        backlog = await backlog_in_seconds(single)
        assert 1 < backlog["seconds"] < 2 * FLOOD_S
        assert backlog["tickets"] > SLOTS

        await asyncio.sleep(max(began + OLD_S - time.monotonic(), 0))
        assert await seconds_of_another(single, flood) < 3 * TOKENS * STEP_S, "the next free slot is its own"
        refused = await ask_over_http(single, deadline_s=1.0)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "busy")
        assert 1 <= int(refused.headers["retry-after"]) <= 2 * FLOOD_S
        patient = await ask_over_http(single, deadline_s=60.0)
        assert patient.status_code == 200

        await ended(flood)
        assert time.monotonic() - began > FLOOD_S * 0.8, "no flood"
        assert len(tap.opens) == len(ticketed(single)) == FLOOD + 2, "no ticket for the refused one"
        assert set(tap.opens.values()) == {1}
        await tap.settled()
    assert single.status()["backlogs"][0]["seconds"] == 0


async def seconds_of_another(pipeline: Pipeline, flood: list[Stream]) -> float:
    """Until another tenant has its answer, while those of the flood still come."""
    async with Headrace(pipeline.url, tenant="quiet") as quiet:
        asked, before = time.monotonic(), answered(flood)
        answer = await quiet.complete(prompt=prompt_of(FLOOD), max_tokens=20)
        assert len(answer.choices[0].ids) == 20
        assert answered(flood) - before <= 2 * SLOTS
        assert answered(flood) < FLOOD - SLOTS
        return time.monotonic() - asked


def answered(streams: list[Stream]) -> int:
    return sum(stream.done.done() for stream in streams)


async def backlog_in_seconds(pipeline: Pipeline) -> dict[str, float]:
    """What `headrace status` says of it, once the rate is known."""
    found: list[dict[str, float]] = []

    async def known() -> bool:
        found[:] = (await asyncio.to_thread(pipeline.status))["backlogs"]
        return bool(found) and found[0]["seconds"] > 0

    await until(known, "a backlog in seconds", seconds=10)
    return found[0]


async def ask_over_http(pipeline: Pipeline, deadline_s: float) -> httpx.Response:
    """As the tenant that floods."""
    body = {"model": SIMULATED, "messages": question("late"), "max_tokens": 10, "deadline_s": deadline_s}
    async with httpx.AsyncClient(timeout=60) as http:
        return await http.post(f"{pipeline.api_url}/chat/completions", json=body)


def ticketed(pipeline: Pipeline) -> set[str]:
    """The keys of the requests that became tickets."""
    return {str(line["request_id"]) for line in events(pipeline, "preprocess", "preprocess.ticketed")}
