"""Blocking steps run beside the event loop, one batch a step reaches it, and faults reach whom they concern."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from schemas.ticket import EngineSampling
from stages.inference.engine import (
    Advance,
    EngineDead,
    EngineFacts,
    EngineLoad,
    EngineRequest,
    EngineUnavailable,
    StepOutput,
)
from stages.inference.step_thread import StepThread

FACTS = EngineFacts(100, 32, 4, 64, 16, 64)


class StandInEngine:
    """Counts up for every request; a step blocks for `step_s`; id `bad` is refused, a `fail` ends the engine."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.step_s = step_s
        self.requests: dict[str, int] = {}
        self.threads: set[int] = set()
        self.closed = False
        self.loading_until_given_up = False

    def start(self, give_up: Callable[[], bool]) -> EngineFacts:
        while self.loading_until_given_up and not give_up():
            time.sleep(0.01)
        if self.loading_until_given_up:
            raise EngineUnavailable("given up")
        self.threads.add(threading.get_ident())
        return FACTS

    def add(self, request: EngineRequest) -> None:
        if request.id == "bad":
            raise ValueError("refused")
        self.requests[request.id] = 0

    def abort(self, ids: list[str]) -> None:
        for one in ids:
            self.requests.pop(one, None)

    def has_work(self) -> bool:
        return bool(self.requests)

    def step(self) -> StepOutput:
        self.threads.add(threading.get_ident())
        time.sleep(self.step_s)
        if "fail" in self.requests:
            raise RuntimeError("out of luck")
        for one in self.requests:
            self.requests[one] += 1
        return StepOutput([Advance(one, [count]) for one, count in self.requests.items()], EngineLoad(), 0.0)

    def close(self) -> None:
        self.closed = True


def request(name: str) -> EngineRequest:
    return EngineRequest(name, [1], EngineSampling(max_tokens=5))


async def started(engine: StandInEngine) -> StepThread:
    thread = StepThread(lambda: engine)
    assert await thread.start() == FACTS
    return thread


async def test_one_thread_one_batch_a_step() -> None:
    """Steps come in order with all requests in each, from a single thread that is not the loop's."""
    engine = StandInEngine()
    thread = await started(engine)
    thread.add(request("a"))
    first = await thread.next_step()
    thread.add(request("b"))
    counts = [first.advances[0].ids[0]]
    while len((step := await thread.next_step()).advances) < 2:
        counts.append(step.advances[0].ids[0])
    assert counts == list(range(1, len(counts) + 1))
    assert {advance.id for advance in step.advances} == {"a", "b"}
    await thread.close()
    assert engine.closed
    assert len(engine.threads) == 1
    assert threading.get_ident() not in engine.threads


async def test_the_loop_goes_on_during_a_step() -> None:
    """A step of 1.5 s holds up nothing on the loop; its duration is measured."""
    thread = await started(StandInEngine(step_s=1.5))
    thread.add(request("a"))
    stepping = asyncio.create_task(thread.next_step())
    ticks, longest = 0, 0.0
    while not stepping.done():
        before = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - before)
        ticks += 1
    assert ticks > 10
    assert longest < 1.4
    assert 1.49 < stepping.result().seconds < 10
    await thread.close()


async def test_a_refused_request_stays_alone() -> None:
    """The engine's exception for one request comes back as its error; another one is served."""
    thread = await started(StandInEngine())
    thread.add(request("bad"))
    thread.add(request("good"))
    errors, served = list[str](), False
    while not (errors and served):
        for advance in (await thread.next_step()).advances:
            errors += [advance.error] if advance.error else []
            served = served or advance.id == "good"
    assert errors == ["ValueError: refused"]
    await thread.close()


async def test_a_dead_engine_is_dead_for_good() -> None:
    """An exception in a step ends the engine: every later step says so."""
    thread = await started(StandInEngine())
    thread.add(request("fail"))
    for _ in range(2):
        with pytest.raises(EngineDead, match="out of luck"):
            await asyncio.wait_for(thread.next_step(), 1)
    await thread.close()


async def test_abort_between_steps() -> None:
    """An aborted request is gone after the step under way."""
    engine = StandInEngine(step_s=0.01)
    thread = await started(engine)
    thread.add(request("a"))
    thread.add(request("b"))
    await thread.next_step()
    thread.abort(["a", "unknown"])
    steps = [await thread.next_step() for _ in range(3)]
    assert [advance.id for advance in steps[-1].advances] == ["b"]
    await thread.close()


@pytest.mark.parametrize(
    ("error", "words"), [(EngineUnavailable("no metal"), "^no metal$"), (MemoryError("full"), "MemoryError.*full")]
)
async def test_a_failed_start(error: Exception, words: str) -> None:
    """Whatever keeps an engine from starting is raised where it was started."""

    def make() -> StandInEngine:
        raise error

    maker: Callable[[], StandInEngine] = make
    thread = StepThread(maker)
    with pytest.raises(EngineUnavailable, match=words):
        await asyncio.wait_for(thread.start(), 1)
    await thread.close()


async def test_close_while_it_loads() -> None:
    """A start that is not waited for any more is told so, and its thread ends before the process does."""
    engine = StandInEngine()
    engine.loading_until_given_up = True
    thread = StepThread(lambda: engine)
    starting = asyncio.create_task(thread.start())
    await asyncio.sleep(0.05)
    starting.cancel()
    begin = time.monotonic()
    await thread.close()
    assert time.monotonic() - begin < 5
    assert not thread._thread.is_alive()


async def test_close_does_not_wait_for_a_hung_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that never ends is left behind."""
    monkeypatch.setattr("stages.inference.step_thread.CLOSE_PATIENCE_S", 0.05)
    thread = await started(StandInEngine(step_s=2))
    thread.add(request("a"))
    begin = time.monotonic()
    await asyncio.sleep(0.02)
    await thread.close()
    assert time.monotonic() - begin < 1.5
