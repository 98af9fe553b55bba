"""The engine's own client hands every step to those whom it brings something, and lets go of who leaves."""

import asyncio
from typing import Any

import pytest

from load.generator import engine_target
from load.generator.engine_target import EngineTarget
from load.generator.record import Record
from load.generator.target import Failed, Unreachable
from load.workload.chat_format import tokenizer_file
from load.workload.chats import Chat
from stages.inference.engine import (
    Advance,
    EngineDead,
    EngineFacts,
    EngineLoad,
    EngineRequest,
    EngineUnavailable,
    StepOutput,
)

MODEL = str(tokenizer_file("", "").parent)


class Engine:
    """Gives the steps that a test puts into `steps`."""

    def __init__(self, wanted: Any, hardware: Any) -> None:
        self.options = wanted.options
        self.steps: asyncio.Queue[StepOutput | Exception] = asyncio.Queue()
        self.added: list[EngineRequest] = []
        self.aborted: list[str] = []

    async def start(self) -> EngineFacts:
        if self.options.get("refuse"):
            raise EngineUnavailable("no such option")
        return EngineFacts(100, 100, 1, 100, 16, 100)

    def add(self, request: EngineRequest) -> None:
        self.added.append(request)

    def abort(self, ids: list[str]) -> None:
        self.aborted += ids

    async def next_step(self) -> StepOutput:
        step = await self.steps.get()
        if isinstance(step, Exception):
            raise step
        return step

    async def close(self) -> None:
        return

    def put(self, *advances: Advance) -> None:
        self.steps.put_nowait(StepOutput(list(advances), EngineLoad(), 0.0))


def set_nothing(_: object) -> dict[str, str]:
    return {}


@pytest.fixture(autouse=True)
def _no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_target, "VllmProcess", Engine)
    monkeypatch.setattr(engine_target, "set_environment", set_nothing)
    monkeypatch.setenv("PYTHONPATH", "")


def engine_of(target: EngineTarget) -> Engine:
    engine = target._engine
    assert isinstance(engine, Engine)
    return engine


def asking(target: EngineTarget, number: int, *, left: int = 0) -> tuple[Record, "asyncio.Task[None]"]:
    record = Record(number, 0.0, 3)
    return record, asyncio.create_task(target.ask(Chat([], 3, left, ids=[1, 2, 3, 4]), record))


async def test_steps() -> None:
    """A step's ids go to those whom they are for; an answer has its tokens, its events, and text where it is wanted."""
    async with EngineTarget(MODEL, {}) as target:
        engine = engine_of(target)
        (first, one), (second, other) = asking(target, 1, left=1), asking(target, 2)
        await asyncio.sleep(0)
        engine.put(Advance("1", [500]), Advance("2", [600, 601]), Advance("unknown", [5]))
        engine.put(Advance("1", [501, 502], finish="length"), Advance("2", [602], finish="length"))
        await asyncio.gather(one, other)
    assert [(request.prompt, request.sampling.max_tokens) for request in engine.added] == [([1, 2, 3, 4], 3)] * 2
    for record in (first, second):
        assert (record.prompt_tokens, record.output_tokens, record.finish) == (4, 3, "length")
        assert len(record.events) == 2
    assert first.pieces == [target._tokenizer.decode([500, 501, 502])]
    assert (second.pieces, engine.aborted) == ([], [])


async def test_leaving() -> None:
    """Who is cancelled is aborted in the engine, and what a step still brings of it is nobody's."""
    async with EngineTarget(MODEL, {}) as target:
        record, task = asking(target, 1)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        engine_of(target).put(Advance("1", [5]))
        await asyncio.sleep(0.01)
        assert engine_of(target).aborted == ["1"]
        assert len(record.events) == 0


async def test_failures() -> None:
    """One bad request fails alone; a dead engine fails all that run, and all that come."""
    async with EngineTarget(MODEL, {}) as target:
        engine = engine_of(target)
        (_, bad), (_, running) = asking(target, 1), asking(target, 2)
        await asyncio.sleep(0)
        engine.put(Advance("1", [], error="no"))
        with pytest.raises(Failed, match="engine_error: no"):
            await bad
        engine.steps.put_nowait(EngineDead("gone"))
        with pytest.raises(Failed, match="engine_dead: gone"):
            await running
        with pytest.raises(Failed, match="engine_dead: gone"):
            await asking(target, 3)[1]


async def test_options() -> None:
    """What is given goes over what is usual; an engine that cannot start is no server."""
    async with EngineTarget(MODEL, {"max_num_seqs": 4}) as target:
        assert engine_of(target).options["max_num_seqs"] == 4
        assert engine_of(target).options["distributed_executor_backend"] == "load.simulated_gpu.SimulatedExecutor"
    with pytest.raises(Unreachable, match="no such option"):
        async with EngineTarget(MODEL, {"refuse": True}):
            pass
