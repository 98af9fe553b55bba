"""The official OpenAI client at the edges of a pipeline, and more edges beside the one that `headrace up` starts."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk

from broker.free_ports import free_port
from load.pipeline import Pipeline, terminate
from load.simulated_truth import ids_of_question, true_ids, true_text
from tests.acceptance.health import ask
from tests.acceptance.waiting import until

SIMULATED = "simulated"


def openai_at(url: str, **options: Any) -> Any:
    """An `AsyncOpenAI` that tries nothing twice: what happened has to be seen.

    Typed as anything: its overloads take no options that stand in a dictionary.
    """
    wanted: Any = {"api_key": "none", "max_retries": 0, "timeout": 60.0, **options}
    return AsyncOpenAI(base_url=url, **wanted)


@dataclass(frozen=True)
class Edge:
    """One edge process on a port of its own."""

    process: "subprocess.Popen[bytes]"
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextlib.asynccontextmanager
async def edge_beside(pipeline: Pipeline, **settings: str) -> AsyncGenerator[Edge]:
    """One more edge, ready; ended with the block unless it is gone by then."""
    port = free_port()
    process = await asyncio.to_thread(pipeline.start_stage, "edge", port=str(port), **settings)
    try:
        await until(lambda: asyncio.to_thread(_ready, port), "a second edge")
        yield Edge(process, port)
    finally:
        await asyncio.to_thread(terminate, process)


def _ready(port: int) -> bool:
    return ask(port, "/ready") == 200


def question(text: str) -> list[dict[str, str]]:
    """Messages."""
    return [{"role": "user", "content": text}]


def answer_to(text: str, tokens: int) -> str:
    """What the simulated engine says to that question."""
    return true_text(true_ids(ids_of_question(text), tokens))


def text_of(chunks: Iterable[ChatCompletionChunk], index: int = 0) -> str:
    """The text of one choice of a stream."""
    pieces = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(piece.delta.content or "" for piece in pieces)
