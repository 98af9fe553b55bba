"""Everything is bounded: without a worker the queues fill, the next request is refused, nothing accepted is lost."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Headrace, RequestFault
from load.pipeline import Pipeline, terminate
from load.simulated_truth import prompt_of, true_ids, true_text
from tests.acceptance.waiting import eventually

pytestmark = pytest.mark.timeout(120)

REQUESTS, TICKETS = 24, 8


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Pipeline]:
    """Small queues and no worker."""
    arguments = ["--engine", "simulated", "--replicas", "inference=0"]
    for limit in (f"topology.requests_per_subject={REQUESTS}", f"topology.tickets_per_subject={TICKETS}"):
        arguments += ["--set", limit]
    pipeline = Pipeline(tmp_path, arguments)
    yield pipeline
    assert pipeline.stop() == 0, pipeline.output[-3000:]


async def test_full_then_drained(small: Pipeline) -> None:
    """No worker: REQUESTS and TICKETS fill to their limits, the next publish is refused; then all is answered."""
    first = await asyncio.to_thread(small.start_stage, "inference", engine="simulated")
    async with Headrace(small.url) as client:
        await asyncio.to_thread(
            eventually, lambda: "simulated" in small.run("models").stdout, 20, "the model is published"
        )
        await asyncio.wait_for(client.complete(prompt=prompt_of(0), max_tokens=4, model="simulated"), 30)
        assert await asyncio.to_thread(terminate, first) == 0

        accepted: list[asyncio.Task[str]] = []
        refused = 0
        for number in range(1, REQUESTS + TICKETS + 100):
            task = asyncio.create_task(text_of(client, number))
            await asyncio.sleep(0.02)
            if task.done() and isinstance(task.exception(), RequestFault):
                assert_busy(task)
                refused += 1
                if refused >= 5:
                    break
            else:
                accepted.append(task)
        assert refused == 5, "nothing was refused"
        assert TICKETS < len(accepted) <= REQUESTS + TICKETS
        depths = small.status()["depths"]["streams"]
        assert depths["TICKETS"]["messages"] == TICKETS
        assert depths["REQUESTS"]["messages"] == REQUESTS

        await asyncio.to_thread(small.start_stage, "inference", engine="simulated")
        texts = await asyncio.wait_for(asyncio.gather(*accepted), 60)
    assert texts == [true_text(true_ids(prompt_of(number), 12)) for number in numbers_of(accepted)]


async def text_of(client: Headrace, number: int) -> str:
    return (await client.complete(prompt=prompt_of(number), max_tokens=12, model="simulated")).text


def assert_busy(task: "asyncio.Task[str]") -> None:
    error = task.exception()
    assert isinstance(error, RequestFault)
    assert error.fault.code == "busy"


def numbers_of(accepted: "list[asyncio.Task[str]]") -> list[int]:
    """Requests are refused only after the last accepted one, so the accepted are the first."""
    return list(range(1, len(accepted) + 1))
