"""All that is behind the edge, played by the test: hears requests and cancels, and stores results as an owner does."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import msgspec

from broker import subjects
from broker.connection import Connection, Inbound
from broker.publisher import Publisher
from broker.registry import Registry
from broker.topology import Topology
from schemas.codec import decode, encode
from schemas.faults import Fault
from schemas.model import ModelCard
from schemas.request import Request
from schemas.result import Result, ResultLogprob, ToolCallPiece, Usage
from schemas.ticket import EngineSampling

CARD = ModelCard(
    slug="m",
    name="m",
    engine="simulated",
    context_length=64,
    vocab_size=8,
    eos_ids=[],
    defaults=EngineSampling(max_tokens=0),
)

FULL = msgspec.structs.replace(CARD, slug="full", name="full")
"""A model whose queue a test fills: nobody hears of its requests."""


@dataclass
class Asked:
    """A request that came in, and what has been answered: `say` pieces, then `end` or `fail`."""

    tenant: str
    request: Request
    subject: str
    publisher: Publisher
    text: str = ""
    tokens: int = 0
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(
        self, text: str = "", finish: str = "", reasoning: str = "", calls: list[ToolCallPiece] | None = None
    ) -> None:
        """The next token, with that text."""
        end = self.tokens + 1
        logprobs = (
            [ResultLogprob(text, list(text.encode()), -0.5)] if self.request.sampling.logprobs is not None else None
        )
        result = Result(
            choice=0,
            attempt=1,
            at=1,
            token_from=self.tokens,
            token_to=end,
            ids=[7],
            text_from=len(self.text),
            text=text,
            reasoning=reasoning,
            tool_calls=calls,
            logprobs=logprobs if text else None,
            logprobs_from=self.tokens,
            finish=finish,
            usage=Usage(prompt_tokens=3, completion_tokens=end) if finish else None,
        )
        self.tokens, self.text = end, self.text + text
        await self.store(result)

    async def fail(self, fault: Fault) -> None:
        """It ends so, behind all that was said."""
        end, characters = self.tokens, len(self.text)
        await self.store(
            Result(choice=0, attempt=1, at=1, token_from=end, token_to=end, text_from=characters, fault=fault)
        )

    async def store(self, result: Result) -> None:
        await self.publisher.publish(self.subject, encode(result))


class StandIn:
    """All requests of a broker, by their order; a request that came twice is there once, as its message is stored once.

    `on_request` is what is done with each at once. A cancelled one ends with that fault.
    """

    def __init__(self, connection: Connection, topology: Topology) -> None:
        self.asked: list[Asked] = []
        self.on_request: Callable[[Asked], Coroutine[None, None, None]] | None = None
        self._connection = connection
        self._partitions = topology.partitions
        self._publisher = Publisher(connection)
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await Registry(self._connection).publish_model(CARD, {})
        await self._connection.subscribe("hr.request.>", self._on_request)
        await self._connection.subscribe(f"$KV.{subjects.CANCELLED_BUCKET}.>", self._on_cancel)
        await self._connection.prove_subscriptions()

    def reset(self) -> None:
        """As if nothing had come yet; what still runs goes on."""
        self.asked = []
        self.on_request = None

    async def next(self, number: int = 0) -> Asked:
        """The request that came as that number."""
        async with asyncio.timeout(30):
            while len(self.asked) <= number:
                self._changed.clear()
                await self._changed.wait()
        return self.asked[number]

    async def _on_request(self, message: Inbound) -> None:
        _, _, tenant, model = message.subject.split(".")
        if model == FULL.slug:
            return
        request = decode(Request, message.data)
        if any((each.tenant, each.request.id) == (tenant, request.id) for each in self.asked):
            return
        partition = subjects.partition_of(f"{tenant}.{request.id}", self._partitions)
        subject = subjects.result(partition, tenant, request.session, request.id)
        asked = Asked(tenant, request, subject, self._publisher)
        self.asked.append(asked)
        self._changed.set()
        if self.on_request is not None:
            self._tasks.add(asyncio.create_task(self.on_request(asked)))

    async def _on_cancel(self, message: Inbound) -> None:
        key = message.subject.removeprefix(f"$KV.{subjects.CANCELLED_BUCKET}.")
        for asked in self.asked:
            if f"{asked.tenant}.{asked.request.id}" == key and not asked.cancelled.is_set():
                asked.cancelled.set()
                await asked.fail(Fault("cancelled", "by a cancel"))
