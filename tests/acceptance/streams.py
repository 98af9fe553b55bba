"""Streamed answers as a client sees them: held against the truth, with the longest time in which nothing came."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace import Headrace
from load.simulated_truth import prompt_of, true_ids, true_text
from tests.acceptance.waiting import until


@dataclass
class Told:
    """One answer as it grows. `longest_gap_s` is between two chunks, the first one not counted."""

    id: str
    prompt: list[int]
    tokens: int
    text: str = ""
    ids: list[int] = field(default_factory=list[int])
    chunks: int = 0
    longest_gap_s: float = 0.0
    finish: str = ""

    def assert_true(self) -> None:
        """Every id and every character, each once."""
        wanted = true_ids(self.prompt, self.tokens)
        assert self.ids == wanted, self.id
        assert self.text == true_text(wanted), self.id
        assert self.finish == "length", self.id


@dataclass
class Stream:
    """An answer that is being read. `done` raises what the client gets, a fault too."""

    told: Told
    done: "asyncio.Task[None]"


def begin(client: Headrace, number: int, tokens: int, **options: Any) -> Stream:
    """Asks for `tokens` tokens after a prompt that only this number has; the request's id is the number's."""
    prompt = options.pop("prompt", None) or prompt_of(number)
    told = Told(f"r{number}", prompt, tokens)
    return Stream(told, asyncio.create_task(_read(client, told, options)))


async def begun(streams: Iterable[Stream], seconds: float = 30) -> None:
    """Returns once something of each answer has come."""
    await until(lambda: all(stream.told.ids for stream in streams), "first tokens", seconds=seconds)


async def ended(streams: Iterable[Stream], seconds: float = 60) -> float:
    """All answers whole and right; the longest gap of all of them in seconds."""
    async with asyncio.timeout(seconds):
        await asyncio.gather(*(stream.done for stream in streams))
    for stream in streams:
        stream.told.assert_true()
    return max(stream.told.longest_gap_s for stream in streams)


async def _read(client: Headrace, told: Told, options: dict[str, Any]) -> None:
    last = 0.0
    async for chunk in client.stream(prompt=told.prompt, max_tokens=told.tokens, request_id=told.id, **options):
        now = time.monotonic()
        assert (chunk.token_from, chunk.text_from) == (len(told.ids), len(told.text)), told.id
        told.longest_gap_s = max(told.longest_gap_s, now - last) if told.chunks else 0.0
        last = now
        told.text += chunk.text
        told.ids += chunk.ids
        told.chunks += 1
        told.finish = chunk.finish
