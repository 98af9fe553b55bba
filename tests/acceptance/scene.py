"""A pipeline in which everything fills up soon, with somebody who asks and somebody who looks on."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace import Headrace, RequestFault
from load.pipeline import Pipeline
from tests.acceptance.streams import Stream, begin, begun
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import Wiretap, listening

SLOTS, TICKETS = 2, 8

numbers = itertools.count(1)
"""Every request gets one of its own."""


def crowded(folder: Path) -> Iterator[Pipeline]:
    """One worker of two slots, room for eight tickets, a prefill that lasts, and a context for very long prompts."""
    settings = {
        "inference.simulated_step_ms": 5,
        "inference.simulated_prefill_us": 800,
        "inference.simulated_step_tokens": 128,
        "inference.simulated_context": 2_000_000,
        "inference.simulated_kv_tokens": 4_000_000,
        "inference.slots": SLOTS,
        "topology.tickets_per_subject": TICKETS,
        "topology.max_request_bytes": 7_000_000,
    }
    arguments = ["--engine", "simulated"]
    for name, value in settings.items():
        arguments += ["--set", f"{name}={value}"]
    running = Pipeline(folder, arguments)
    yield running
    assert running.stop() == 0, running.output[-3000:]


@dataclass
class Scene:
    """A pipeline with somebody who asks and somebody who looks on."""

    pipeline: Pipeline
    client: Headrace
    tap: Wiretap
    asked: list[Stream] = field(default_factory=list[Stream])

    def ask(self, tokens: int = 100_000, **options: Any) -> Stream:
        self.asked.append(begin(self.client, next(numbers), tokens, **options))
        return self.asked[-1]

    async def fill(self) -> list[Stream]:
        """Requests that take every slot, for as long as it takes."""
        streams = [self.ask() for _ in range(SLOTS)]
        await begun(streams)
        await until(lambda: self.tap.running == SLOTS, "a full worker")
        return streams

    async def clear(self) -> None:
        """After a test that failed: nothing of it may stand in the way of the next one."""
        for stream in self.asked:
            if not stream.done.done():
                await self.client.cancel(stream.told.id)
        await asyncio.gather(*(stream.done for stream in self.asked), return_exceptions=True)

    async def cancelled(self, *streams: Stream) -> float:
        """Cancels them, and holds each to its one terminal. The seconds until no engine had anything to do."""
        begin_at = time.monotonic()
        for stream in streams:
            await self.client.cancel(stream.told.id)
        await until(lambda: not self.tap.running, "idle engines", every_s=0.01)
        idle_s = time.monotonic() - begin_at
        for stream in streams:
            with pytest.raises(RequestFault, match="cancelled"):
                async with asyncio.timeout(30):
                    await stream.done
        return idle_s

    async def nothing_left_of(self, *streams: Stream, fault: str = "cancelled") -> None:
        """One terminal each, and empty streams."""
        await self.tap.settled()
        assert [await self.tap.terminal(stream.told.id) for stream in streams] == [fault] * len(streams)

    async def stored(self, stream: str, count: int) -> bool:
        return await self.tap.messages(stream) == count

    async def held(self, stream: str, count: int) -> bool:
        return await self.tap.held(stream) == count

    async def journals_hold(self, messages: int) -> bool:
        return await self.tap.journals() >= messages


@contextlib.asynccontextmanager
async def looking_on(pipeline: Pipeline) -> AsyncGenerator[Scene]:
    async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap:
        scene = Scene(pipeline, client, tap)
        yield scene
        await scene.clear()
