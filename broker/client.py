"""The Python client: requests in, streamed answers out. Speaks only what `docs/protocol.md` says."""

import os
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import msgspec

from broker import subjects
from broker.answer_stream import AnswerStream
from broker.assembly import Chunk
from broker.cancels import put_cancel
from broker.connection import BrokerError, BrokerOptions, Connection, Inbound, Subscription, TooLarge
from broker.publisher import Full, Publisher
from broker.registry import Registry
from broker.topology import count_partitions
from schemas.codec import CONTENT_TYPES, WireError, encode
from schemas.control import Cancel
from schemas.faults import RequestFault
from schemas.model import ModelCard, slug
from schemas.request import ChatMessage, Request, Sampling
from schemas.result import Costs, ResultLogprob, Usage

SUBMIT_PATIENCE_S = 10.0

_SAMPLING_FIELDS = frozenset(Sampling.__struct_fields__)


@dataclass(frozen=True)
class CompletedChoice:
    """One choice, whole."""

    text: str
    ids: list[int]
    finish: str
    logprobs: list[ResultLogprob] | None = None
    stop_reason: str | int | None = None
    usage: Usage | None = None
    costs: Costs | None = None


@dataclass(frozen=True)
class Completion:
    """A whole answer: all its choices, in their order."""

    id: str
    choices: list[CompletedChoice] = field(default_factory=list[CompletedChoice])

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.choices[0].text


class Headrace:
    """A client of one tenant. `async with Headrace(url) as hr: async for chunk in hr.stream(messages=[…]): …`

    One instance serves any number of requests at once over one connection and one subscription. `options` carries
    credentials, TLS and the inbox prefix; `url` overrides its url, and where neither is given HEADRACE_NATS_URL counts.
    """

    def __init__(
        self,
        url: str = "",
        *,
        tenant: str = "default",
        options: BrokerOptions | None = None,
        patience_s: float = 10.0,
    ) -> None:
        base = options or BrokerOptions(os.environ.get("HEADRACE_NATS_URL", BrokerOptions.url), "headrace-client")
        self.options = replace(base, url=url) if url else base
        self.tenant = tenant
        self.session = secrets.token_hex(8)
        self._patience_s = patience_s
        self._streams: dict[str, AnswerStream] = {}
        self._slugs: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        """Connects, subscribes to this session's results and proves it. Raises `Unavailable`."""
        self._connection = await Connection.open(self.options, self._patience_s)
        self._partitions = await count_partitions(self._connection, self._patience_s)
        self._publisher = Publisher(self._connection)
        self._registry = Registry(self._connection)
        pattern = subjects.result("*", self.tenant, self.session, "*")
        self._subscription: Subscription = await self._connection.subscribe(pattern, self._on_result)
        await self._connection.prove_subscriptions()
        self._connection.on_reconnect.append(self._on_reconnect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._subscription.close()
        await self._connection.close()

    async def stream(
        self,
        *,
        model: str = "",
        messages: list[dict[str, Any]] | None = None,
        prompt: str | list[int] | None = None,
        request_id: str = "",
        **options: Any,
    ) -> AsyncGenerator[Chunk, None]:
        """The answer's chunks as they come; leaving the loop early cancels the request.

        `options` are the fields of `Request` (stop, n, deadline_s, …) and of `Sampling` (max_tokens, temperature, …).
        `model` may be left out where only one is served. Raises `RequestFault`.
        """
        request = await self._request(model, messages, prompt, request_id, options)
        stream = await self._submit(request)
        try:
            async for chunk in stream:
                yield chunk
        finally:
            del self._streams[request.id]
            if not stream.ended:
                await self.cancel(request.id)

    async def complete(self, **arguments: Any) -> Completion:
        """The whole answer. Takes what `stream` takes. Raises `RequestFault`."""
        request_id = str(arguments.pop("request_id", "") or new_id())
        chunks: dict[int, list[Chunk]] = {}
        async for chunk in self.stream(request_id=request_id, **arguments):
            chunks.setdefault(chunk.choice, []).append(chunk)
        return Completion(request_id, [_completed(chunks[choice]) for choice in sorted(chunks)])

    async def cancel(self, request_id: str) -> None:
        """Stops a request of this tenant wherever it is. Its answer ends with the fault `cancelled`."""
        await put_cancel(self._connection, f"{self.tenant}.{request_id}", Cancel(self.session))

    async def models(self) -> list[ModelCard]:
        """What is served."""
        return await self._registry.models()

    async def _request(
        self,
        model: str,
        messages: list[dict[str, Any]] | None,
        prompt: str | list[int] | None,
        request_id: str,
        options: dict[str, Any],
    ) -> Request:
        sampling = {name: options.pop(name) for name in list(options) if name in _SAMPLING_FIELDS}
        try:
            return Request(
                id=request_id or new_id(),
                session=self.session,
                model=model,
                messages=msgspec.convert(messages, list[ChatMessage] | None),
                prompt=prompt,
                sampling=msgspec.convert(sampling, Sampling),
                **options,
            )
        except (TypeError, msgspec.ValidationError) as error:
            raise RequestFault("invalid_request", str(error)) from error

    async def _submit(self, request: Request) -> AnswerStream:
        """Publishes the request; its results are routed to the returned stream from before that on."""
        subject = subjects.request(self.tenant, await self._slug(request.model))
        if request.id in self._streams:
            raise RequestFault("invalid_request", "is being answered in this client already", "id")
        stream = AnswerStream(self._connection, self._partitions, self.tenant, request)
        self._streams[request.id] = stream
        try:
            await self._publish(subject, request)
        except BaseException:
            del self._streams[request.id]
            raise
        return stream

    async def _publish(self, subject: str, request: Request) -> None:
        try:
            await self._publisher.publish_patiently(
                subject,
                encode(request),
                message_id=f"{self.tenant}.{request.id}",
                content_type=CONTENT_TYPES["msgpack"],
                patience_s=SUBMIT_PATIENCE_S,
                wait_when_full=False,
            )
        except WireError as error:
            raise RequestFault("invalid_request", error.reason, error.field) from error
        except Full as error:
            raise RequestFault("busy", "the queue of this tenant and model is full") from error
        except TooLarge as error:
            raise RequestFault("too_large", str(error)) from error
        except BrokerError as error:
            raise RequestFault("unavailable", str(error)) from error

    async def _slug(self, model: str) -> str:
        """The subject token of a model's name, alias or slug; of the only model there is, where none is named."""
        if model not in self._slugs:
            cards = await self._registry.models()
            if not model and len(cards) != 1:
                names = ", ".join(card.name for card in cards)
                raise RequestFault("model_not_found", f"name one of {names}" if names else "none is served", "model")
            named = [card.slug for card in cards if not model or card.answers_to(model)]
            if not named:
                return slug(model)
            self._slugs[model] = named[0]
        return self._slugs[model]

    async def _on_result(self, message: Inbound) -> None:
        stream = self._streams.get(message.subject.rpartition(".")[2])
        if stream is not None:
            stream.arrived(message)

    def _on_reconnect(self) -> None:
        for stream in self._streams.values():
            stream.look_again()


def new_id() -> str:
    """A fresh request id."""
    return secrets.token_hex(12)


def _completed(chunks: list[Chunk]) -> CompletedChoice:
    last = chunks[-1]
    logprobs = [entry for chunk in chunks for entry in chunk.logprobs or ()]
    return CompletedChoice(
        text="".join(chunk.text for chunk in chunks),
        ids=[token for chunk in chunks for token in chunk.ids],
        finish=last.finish,
        logprobs=logprobs if any(chunk.logprobs is not None for chunk in chunks) else None,
        stop_reason=last.stop_reason,
        usage=last.usage,
        costs=last.costs,
    )
