"""`headrace ask`: one question to a running pipeline, from the command line."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.console import Console

from broker.chunk import Chunk
from broker.client import Headrace, new_id
from broker.completion import completed
from broker.connection import BrokerOptions
from stages.commands.answer_view import Shown, show_answer, summary
from stages.commands.waiting_notice import with_notice

BROKER_PATIENCE_S = 3.0


@dataclass(frozen=True)
class Question:
    """What is asked, and how. None leaves it to the model."""

    text: str
    model: str = ""
    system: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    request_id: str = ""
    tenant: str = ""

    def messages(self) -> list[dict[str, Any]]:
        """The chat that it makes."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.text}]

    def sampling(self) -> dict[str, Any]:
        """What was said about sampling."""
        said = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        return {name: value for name, value in said.items() if value is not None}


async def ask(question: Question, broker: BrokerOptions, *, as_json: bool) -> None:
    """Streams the answer to stdout, or prints it as one JSON object; the request's id goes to stderr.

    Raises `RequestFault`, `BrokerError`.
    """
    request_id = question.request_id or new_id()
    Console(stderr=True).out(f"request {request_id}", style="dim", highlight=False)
    async with Headrace(options=broker, tenant=question.tenant, patience_s=BROKER_PATIENCE_S) as client:
        chunks = client.stream(
            model=question.model, messages=question.messages(), request_id=request_id, **question.sampling()
        )
        await show(request_id, with_notice(chunks, lambda: unserved(client, question.model)), as_json=as_json)


async def show(request_id: str, chunks: AsyncIterator[Chunk], *, as_json: bool) -> None:
    """The answer on stdout as it comes and what it cost on stderr, or all of it as one JSON object."""
    if as_json:
        done = await completed(request_id, chunks)
        print(json.dumps(msgspec.to_builtins(done), ensure_ascii=False))
        return
    _say_costs(await show_answer(chunks, Console(highlight=False)))


async def unserved(client: Headrace, model: str) -> str:
    """Says so where no worker of the model is heard. A tenant's identity may not hear any."""
    if client.options.tenant or await client.is_served(model):
        return ""
    return f"no worker serves {await client.slug(model)} yet"


def _say_costs(shown: Shown) -> None:
    """On stderr, so that stdout holds the answer alone."""
    Console(stderr=True).out(summary(shown), style="dim", highlight=False)
