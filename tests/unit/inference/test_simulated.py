"""The simulated engine schedules as a real one does: slots, KV cache, budget per step, one batch per step."""

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from schemas.ticket import EngineSampling
from stages.inference.admission import already_over
from stages.inference.engine import Advance, EngineRequest, StepOutput
from stages.inference.simulated import SimulatedEngine, SimulatedOptions
from stages.inference.simulated_model import simulated_model

MODEL = simulated_model()


def request(name: str, tokens: int = 4, prompt: int = 3, **sampling: object) -> EngineRequest:
    ids = [(sum(name.encode()) + index) % 200 for index in range(prompt)]
    return EngineRequest(name, ids, EngineSampling(max_tokens=tokens, **sampling))  # pyright: ignore[reportArgumentType]


async def run(engine: SimulatedEngine, *requests: EngineRequest) -> tuple[dict[str, list[Advance]], list[StepOutput]]:
    """All requests to their ends: what each of them got, and all steps."""
    for one in requests:
        engine.add(one)
    got: dict[str, list[Advance]] = {one.id: [] for one in requests}
    steps: list[StepOutput] = []
    while any(not (found and found[-1].finish) for found in got.values()):
        steps.append(await engine.next_step())
        for advance in steps[-1].advances:
            got[advance.id].append(advance)
    return got, steps


def ids_of(advances: list[Advance]) -> list[int]:
    return [one for advance in advances for one in advance.ids]


async def test_gives_the_models_ids_one_batch_a_step() -> None:
    """Three requests at once: a token each in every step, the ids of the pure function, ended by max_tokens."""
    got, steps = await run(SimulatedEngine(SimulatedOptions()), *(request(name) for name in "abc"))
    assert [len(step.advances) for step in steps] == [3, 3, 3, 3]
    for name, advances in got.items():
        expected: list[int] = []
        while len(expected) < 4:
            expected.append(MODEL.next_id(request(name).prompt, expected))
        assert ids_of(advances) == expected
        assert (advances[-1].finish, advances[-1].stop_id) == ("length", None)


async def test_resumes() -> None:
    """What earlier attempts generated is gone on with, up to the same end."""
    whole = ids_of((await run(SimulatedEngine(SimulatedOptions()), request("a", 20)))[0]["a"])
    resumed = EngineRequest("a", request("a").prompt, EngineSampling(max_tokens=20), whole[:13])
    rest, _ = await run(SimulatedEngine(SimulatedOptions()), resumed)
    assert whole[:13] + ids_of(rest["a"]) == whole


@pytest.mark.parametrize("sampling", [{}, {"min_tokens": 25}, {"ignore_eos": True}, {"stop_token_ids": True}])
async def test_limits_hold_over_the_seam(sampling: dict[str, Any]) -> None:
    """Wherever an answer is taken up again, its ids, logprobs and end are those of the undisturbed one."""
    engine = SimulatedEngine(SimulatedOptions(eos_probability=0.1, context_length=43))
    plain = ids_of((await run(engine, request("a", 60, ignore_eos=True)))[0]["a"])
    assert len(plain) == 40, "the context is full"
    if "stop_token_ids" in sampling:
        sampling = {"stop_token_ids": [plain[5], plain[30]], "ignore_eos": True, "min_tokens": 8}
    whole = request("a", 38, logprobs=2, **sampling)
    undisturbed = (await run(engine, whole))[0]["a"]
    ids = ids_of(undisturbed)
    facts = await engine.start()
    for cut in range(1, len(ids)):
        resumed = EngineRequest("a", whole.prompt, whole.sampling, ids[:cut])
        assert already_over(resumed, facts) is None
        rest = (await run(engine, resumed))[0]["a"]
        assert ids[:cut] + ids_of(rest) == ids
        assert [one.logprobs for one in rest] == [one.logprobs for one in undisturbed[cut:]]
        assert (rest[-1].finish, rest[-1].stop_id) == (undisturbed[-1].finish, undisturbed[-1].stop_id)


async def test_stop_ids_and_min_tokens() -> None:
    """A stop id ends the answer and is its last id, but not before min_tokens."""
    ids = ids_of((await run(SimulatedEngine(SimulatedOptions()), request("a", 30)))[0]["a"])
    stop = ids[5]
    got, _ = await run(SimulatedEngine(SimulatedOptions()), request("a", 30, stop_token_ids=[stop]))
    assert ids_of(got["a"]) == ids[: ids.index(stop) + 1]
    assert (got["a"][-1].finish, got["a"][-1].stop_id) == ("stop", stop)
    got, _ = await run(SimulatedEngine(SimulatedOptions()), request("a", 30, stop_token_ids=[stop], min_tokens=10))
    assert len(ids_of(got["a"])) > 10


async def test_eos_unless_ignored() -> None:
    """With a chance of EOS an answer ends with it; a request that ignores it goes on."""
    options = SimulatedOptions(eos_probability=0.2)
    got, _ = await run(SimulatedEngine(options), request("a", 200))
    assert (got["a"][-1].finish, got["a"][-1].stop_id, ids_of(got["a"])[-1]) == ("stop", MODEL.eos, MODEL.eos)
    got, _ = await run(SimulatedEngine(options), request("a", 200, ignore_eos=True))
    assert (len(ids_of(got["a"])), got["a"][-1].finish) == (200, "length")


async def test_slots_and_kv_cache_bound_what_runs() -> None:
    """Never more running than slots, never more KV than there is; the others wait and are served after."""
    options = SimulatedOptions(slots=2, kv_tokens=64, block_size=16)
    _, steps = await run(SimulatedEngine(options), *(request(name, 4, prompt=20) for name in "abcd"))
    assert max(step.load.running for step in steps) <= 2
    assert max(step.load.kv_usage for step in steps) <= 1.0
    assert max(step.load.waiting for step in steps) == 2


async def test_long_prompts_are_prefilled_in_chunks() -> None:
    """A prompt of three budgets takes three steps; a running answer gets its token in each of them."""
    engine = SimulatedEngine(SimulatedOptions(step_tokens=100))
    engine.add(request("short", 50))
    await engine.next_step()
    engine.add(request("long", 1, prompt=290))
    steps = [await engine.next_step() for _ in range(3)]
    assert [[advance.id for advance in step.advances] for step in steps] == [["short"], ["short"], ["short", "long"]]


async def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    """Beside others a prompt gets half of a step at most: a short one behind it has its first token long before it."""
    engine = SimulatedEngine(SimulatedOptions(step_tokens=64))
    got, steps = await run(engine, request("long", 1, prompt=640), request("short", 1, prompt=20))
    assert got["short"][0] in steps[0].advances
    assert got["long"][0] in steps[10].advances, "half of the first step, and all of the others"


async def test_a_shared_prefix_is_in_use_once() -> None:
    """Blocks that running sequences hold in common count once, copies and idle ones as what they are."""
    engine = SimulatedEngine(SimulatedOptions(block_size=16, slots=8))
    prefix = [number % 200 for number in range(160)]
    requests = [EngineRequest(name, [*prefix, index], EngineSampling(max_tokens=9)) for index, name in enumerate("abc")]
    engine.add(requests[0])
    assert (await engine.next_step()).load.kv_used == 176
    for one in requests[1:]:
        engine.add(one)
    assert (await engine.next_step()).load.kv_used == 160 + 3 * 16
    engine.abort(["a"])
    assert (await engine.next_step()).load.kv_used == 160 + 2 * 16, "who computed it may go before the others"
    engine.abort(["b", "c"])
    engine.add(EngineRequest("d", [7], EngineSampling(max_tokens=1)))
    assert (await engine.next_step()).load.kv_used == 0, "cached, and idle"
    for name in "ef":
        engine.add(EngineRequest(name, [9] * 160, EngineSampling(max_tokens=2)))
    assert (await engine.next_step()).load.kv_used == 2 * 176, "computed at the same time"


async def test_more_fits_where_a_prefix_is_shared() -> None:
    """A sequence needs room for what it does not share."""
    prefix = [number % 200 for number in range(160)]
    engine = SimulatedEngine(SimulatedOptions(block_size=16, kv_tokens=256))
    for index, name in enumerate("abcd"):
        engine.add(EngineRequest(name, [*prefix, index], EngineSampling(max_tokens=9)))
    first, second = await engine.next_step(), await engine.next_step()
    assert (first.load.running, second.load.running) == (1, 4)
    assert second.load.kv_used == 160 + 4 * 16


async def test_steps_take_their_time() -> None:
    """A step lasts base + per decoding sequence + per prefilled token, and late wake-ups do not add up."""
    options = SimulatedOptions(step_s=0.004, decode_s=0.001, prefill_s=0.0001)
    begin = time.monotonic()
    await run(SimulatedEngine(options), request("a", 20, prompt=100))
    expected = 0.004 * 20 + 0.001 * 19 + 0.001 + 0.01
    assert expected <= time.monotonic() - begin + 1e-3 < expected + 0.15


async def test_abort_stops_at_once() -> None:
    """An aborted request gets nothing more, neither one that runs nor one that waits."""
    engine = SimulatedEngine(SimulatedOptions(slots=1))
    engine.add(request("a", 100))
    engine.add(request("b", 100))
    engine.add(request("c", 1))
    await engine.next_step()
    engine.abort(["a", "b", "unknown"])
    step = await engine.next_step()
    assert [advance.id for advance in step.advances] == ["c"]


async def test_idle_engine_waits() -> None:
    """Without work no step comes; a new request wakes it."""
    engine = SimulatedEngine(SimulatedOptions())
    waiting = asyncio.create_task(engine.next_step())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    engine.add(request("a"))
    assert (await asyncio.wait_for(waiting, 1)).advances[0].id == "a"


async def test_poison_kills_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault injection: the step that takes in such a prompt is the last; without it in the prompt nothing happens."""
    killed: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))

    monkeypatch.setattr("os.kill", kill)
    engine = SimulatedEngine(SimulatedOptions(poison=199, slots=1))
    await run(engine, EngineRequest("good", [1, 2, 3], EngineSampling(max_tokens=2)))
    assert killed == []
    await run(engine, EngineRequest("bad", [1, 199, 3], EngineSampling(max_tokens=1)))
    assert killed == [(os.getpid(), signal.SIGKILL)]
