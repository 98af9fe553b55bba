"""Runs an engine whose steps block on a thread of its own, so that the event loop's heartbeats go on meanwhile."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from stages.inference.engine import (
    Advance,
    EngineDead,
    EngineFacts,
    EngineLoad,
    EngineRequest,
    EngineUnavailable,
    StepOutput,
)
from stages.inference.kv_blocks import KvBlocks

CLOSE_PATIENCE_S = 5.0
LOADING_PATIENCE_S = 20.0
"""A process that ends while its libraries still load may end in a crash."""


class BlockingEngine(Protocol):
    """An engine core as a plain object; every call comes from the same thread (OpenMP keeps a pool for each thread)."""

    def start(self, give_up: Callable[[], bool]) -> EngineFacts:
        """Loads the model; raises when `give_up()` has become true meanwhile, as soon as it can."""
        ...

    def add(self, request: EngineRequest) -> None:
        """Raises for a request that it refuses."""
        ...

    def abort(self, ids: list[str]) -> None: ...

    def has_work(self) -> bool: ...

    def step(self) -> StepOutput:
        """Runs one step; its `seconds` are measured here. Raising means that the engine is dead."""
        ...

    def close(self) -> None: ...


Command = EngineRequest | list[str] | None
"""A request to add, ids to abort, or None: close."""


class StepThread:
    """The `Engine` around a `BlockingEngine`: an inbox in, one message to the event loop per step out."""

    def __init__(self, make: Callable[[], BlockingEngine], name: str = "engine") -> None:
        self._make = make
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._outbox: asyncio.Queue[StepOutput | EngineDead] = asyncio.Queue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closing = threading.Event()
        self._loaded = False
        self.kv_blocks: KvBlocks | None = None

    async def start(self) -> EngineFacts:
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[EngineFacts] = self._loop.create_future()
        self._thread.start()
        return await self._started

    def add(self, request: EngineRequest) -> None:
        self._inbox.put(request)

    def abort(self, ids: list[str]) -> None:
        self._inbox.put(ids)

    async def next_step(self) -> StepOutput:
        step = await self._outbox.get()
        if isinstance(step, EngineDead):
            self._outbox.put_nowait(step)
            raise step
        if step.kv_changes and self.kv_blocks is not None:
            self.kv_blocks.apply(step.kv_changes)
        return step

    async def close(self) -> None:
        """Waits for the step under way, but not for a hung one: the thread dies with the process then."""
        if self._thread.ident is None:
            return
        self._closing.set()
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_PATIENCE_S if self._loaded else LOADING_PATIENCE_S)

    def _run(self) -> None:
        try:
            engine = self._make()
            facts = engine.start(self._closing.is_set)
        except BaseException as error:  # noqa: BLE001 — whatever it is, the starter is told
            self._call(self._fail_start, error)
            return
        self._loaded = True
        self._call(self._set_started, facts)
        try:
            self._step_until_closed(engine)
        except BaseException as error:  # noqa: BLE001 — likewise
            self._call(self._outbox.put_nowait, EngineDead(f"{type(error).__name__}: {error}"))
        with contextlib.suppress(Exception):
            engine.close()

    def _step_until_closed(self, engine: BlockingEngine) -> None:
        while self._apply_commands(engine):
            if engine.has_work():
                begin = time.monotonic()
                step = engine.step()
                step.seconds = time.monotonic() - begin
                self._call(self._outbox.put_nowait, step)

    def _apply_commands(self, engine: BlockingEngine) -> bool:
        """Applies what waits in the inbox, waiting for it while there is nothing to compute. False: close."""
        refused: list[Advance] = []
        block = not engine.has_work()
        with contextlib.suppress(queue.Empty):
            while (command := self._inbox.get(block=block)) is not None:
                block = False
                if isinstance(command, list):
                    engine.abort(command)
                elif error := _refusal(engine, command):
                    refused.append(Advance(command.id, [], error=error))
            return False
        if refused:
            self._call(self._outbox.put_nowait, StepOutput(refused, EngineLoad(), 0.0))
        return True

    def _call(self, function: Callable[..., None], argument: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(function, argument)

    def _set_started(self, facts: EngineFacts) -> None:
        self.kv_blocks = KvBlocks() if facts.hash_root else None
        if not self._started.done():
            self._started.set_result(facts)

    def _fail_start(self, error: BaseException) -> None:
        if not self._started.done():
            wrapped = error if isinstance(error, EngineUnavailable) else EngineUnavailable(repr(error))
            wrapped.__cause__ = error if wrapped is not error else error.__cause__
            self._started.set_exception(wrapped)


def _refusal(engine: BlockingEngine, request: EngineRequest) -> str:
    try:
        engine.add(request)
    except Exception as error:  # noqa: BLE001 — one bad request must not end the others
        return f"{type(error).__name__}: {error}"
    return ""
