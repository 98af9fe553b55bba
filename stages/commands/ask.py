"""`headrace ask`: one question to a running pipeline, from the command line."""

import json
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.console import Console

from broker.client import Headrace
from broker.connection import BrokerOptions
from stages.commands.answer_view import Shown, show_answer, summary

BROKER_PATIENCE_S = 3.0


@dataclass(frozen=True)
class Question:
    """What is asked, and how. None leaves it to the model."""

    text: str
    model: str = ""
    system: str = ""
    max_tokens: int | None = None
    temperature: float | None = None

    def messages(self) -> list[dict[str, Any]]:
        """The chat that it makes."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.text}]

    def sampling(self) -> dict[str, Any]:
        """What was said about sampling."""
        said = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        return {name: value for name, value in said.items() if value is not None}


async def ask(question: Question, broker: BrokerOptions, *, as_json: bool) -> None:
    """Streams the answer to stdout, or prints it as one JSON object. Raises `RequestFault`, `BrokerError`."""
    async with Headrace(options=broker, patience_s=BROKER_PATIENCE_S) as client:
        if as_json:
            done = await client.complete(model=question.model, messages=question.messages(), **question.sampling())
            print(json.dumps(msgspec.to_builtins(done), ensure_ascii=False))
            return
        chunks = client.stream(model=question.model, messages=question.messages(), **question.sampling())
        shown = await show_answer(chunks, Console(highlight=False))
    _say_costs(shown)


def _say_costs(shown: Shown) -> None:
    """On stderr, so that stdout holds the answer alone."""
    Console(stderr=True).out(summary(shown), style="dim", highlight=False)
