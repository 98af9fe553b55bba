"""The edge's own app over HTTP, with answers from scripts instead of a broker."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import httpx

from broker.answer_stream import Take
from broker.chunk import Chunk
from broker.connection import Connection
from broker.submitting import make_request
from schemas.codec import WireError, encode
from schemas.faults import RequestFault
from schemas.model import ModelCard
from schemas.ticket import EngineSampling
from schemas.tokenization import TokenizeAnswer
from stages.edge.access.callers import ANYBODY, Caller
from stages.edge.access.doorkeeper import Doorkeeper
from stages.edge.app import create_app
from stages.edge.gateway import Gateway
from stages.edge.http.errors import error_of
from stages.edge.live.live import Live
from stages.edge.settings import EdgeSettings
from stages.telemetry import Telemetry

CARD = ModelCard(
    slug="tiny-chat",
    name="org/tiny chat",
    aliases=["tiny"],
    engine="simulated",
    context_length=2048,
    vocab_size=258,
    eos_ids=[256],
    defaults=EngineSampling(max_tokens=0),
)

Step = Chunk | RequestFault | float
"""A piece of an answer, the fault that ends it, or seconds of silence."""

Answer = Sequence[Step] | Callable[[dict[str, Any]], Sequence[Step]]


@dataclass
class ScriptedClient:
    """Answers every request by the script, and remembers what was asked for, and what was left before its end."""

    answer: Answer
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    left: list[str] = field(default_factory=list[str])
    tokenized: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def stream(self, *, take: Take | None = None, **arguments: Any) -> AsyncGenerator[Chunk, None]:
        self.asked.append(arguments)
        as_message(**arguments)
        steps = self.answer(arguments) if callable(self.answer) else self.answer
        done = False
        try:
            for step in steps:
                if isinstance(step, RequestFault):
                    done = True
                    raise step
                if isinstance(step, (float, int)):
                    await asyncio.sleep(step)
                else:
                    await asyncio.sleep(0)
                    if step.finish or take is None or not take(step):
                        yield step
            done = True
        finally:
            if not done:
                self.left.append(arguments["request_id"])

    async def tokenize(self, **what: Any) -> TokenizeAnswer:
        self.tokenized.append(what)
        return TokenizeAnswer(count=2, max_model_len=CARD.context_length, tokens=[1, 2])

    async def detokenize(self, tokens: list[int], *, model: str = "") -> str:
        return bytes(tokens).decode()


def as_message(
    *,
    request_id: str,
    model: str,
    trace: str = "",
    messages: list[dict[str, Any]] | None = None,
    prompt: str | list[int] | None = None,
    **options: Any,
) -> bytes:
    """The message that would be sent. Raises `RequestFault` for what none can hold, as sending it would."""
    request = make_request(request_id, "s", model=model, messages=messages, prompt=prompt, options=options)
    try:
        return encode(request)
    except WireError as error:
        raise RequestFault("invalid_request", error.reason, error.field) from error


class ScriptedGateway:
    """One model, one client."""

    def __init__(self, client: ScriptedClient, settings: EdgeSettings) -> None:
        self.settings = settings
        self.telemetry = Telemetry("edge", "test", environ={})
        self.doorkeeper = Doorkeeper(None)
        self.live = Live(cast(Connection, None), "edge-test")
        self._client = client

    async def card(self, caller: Caller, model: str) -> ModelCard:
        if model and not CARD.answers_to(model):
            raise error_of("model_not_found", f"the model {model!r} does not exist", "model")
        return CARD

    async def client(self, tenant: str) -> ScriptedClient:
        assert tenant == ANYBODY.tenant
        return self._client

    async def retry_after(self, tenant: str, slug: str) -> int:
        return 7


def serving(answer: Answer, **settings: Any) -> tuple[ScriptedClient, httpx.AsyncClient]:
    """The scripted client, and an HTTP client of an edge that has it."""
    client = ScriptedClient(answer)
    gateway = cast(Gateway, ScriptedGateway(client, EdgeSettings(**settings)))
    transport = httpx.ASGITransport(create_app(gateway, max_body_bytes=100_000))
    return client, httpx.AsyncClient(transport=transport, base_url="http://edge")
