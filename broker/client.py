"""The Python client: requests in, streamed answers out. Speaks only what `docs/protocol.md` says."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import structlog

from broker import subjects
from broker.answer_stream import AnswerPlace, AnswerStream, Take, check_start
from broker.assembly import AnswerAssembly, Start
from broker.cancels import put_cancel
from broker.chunk import Chunk
from broker.completion import CompletedChoice, Completion, completed
from broker.connection import BrokerError, BrokerOptions, Connection, Inbound, Subscription, Unavailable
from broker.hearing import worker_heard
from broker.patience import UntilDeadline, WhileAnythingWaits
from broker.publisher import Publisher
from broker.registry import Registry
from broker.request_names import RequestNames
from broker.submitting import broker_faults, make_request, submit
from broker.tokenizing import Tokenizing, make_tokenize_request
from broker.topology import count_partitions
from schemas.control import Cancel
from schemas.faults import RequestFault
from schemas.model import ModelCard, slug
from schemas.request import Request
from schemas.tokenization import DetokenizeRequest, TokenizeAnswer

__all__ = ["CompletedChoice", "Completion", "Headrace", "new_id"]

DEFAULT_TENANT = "default"

log = structlog.get_logger()


class Headrace:
    """A client of one tenant. `async with Headrace(url) as hr: async for chunk in hr.stream(messages=[…]): …`

    One instance serves any number of requests at once over one connection and one subscription. `options` carries
    credentials, TLS and the inbox prefix; `url` overrides its url, and where neither is given HEADRACE_NATS_URL counts
    (and HEADRACE_NATS_IDENTITY where no `options` are). Without `tenant` it is that of the identity, else `default`.
    With `connection` it lives on that one, which stays open: clients of several tenants may share it.

    A stream that is left before its end cancels its request, unless `cancels_when_left` was set to False: a process
    that has to end leaves its requests to those who attach to them.
    """

    def __init__(
        self,
        url: str = "",
        *,
        tenant: str = "",
        options: BrokerOptions | None = None,
        connection: Connection | None = None,
        patience_s: float = 10.0,
    ) -> None:
        self._shared = connection
        base = connection.options if connection else options or _from_environment()
        self.options = replace(base, url=url) if url else base
        self.tenant = tenant or self.options.tenant or DEFAULT_TENANT
        self.cancels_when_left = True
        self.session = secrets.token_hex(8)
        self._patience_s = patience_s
        self._streams: dict[str, AnswerStream] = {}
        self._followed: set[AnswerStream] = set()
        self._slugs: dict[str, str] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Connects, subscribes to this session's results and proves it. Raises `Unavailable`."""
        self._connection = self._shared or await Connection.open(self.options, self._patience_s)
        self._partitions = await count_partitions(self._connection, self._patience_s)
        self._publisher = Publisher(self._connection)
        self._names = RequestNames(self._connection.options)
        self._registry = Registry(self._connection)
        self._tokenizing = Tokenizing(self._connection, self._registry, self._patience_s)
        pattern = subjects.result("*", self.tenant, self.session, "*")
        self._subscription: Subscription = await self._connection.listen(pattern, self._on_result)
        await self._connection.prove_subscriptions()
        self._connection.on_reconnect.append(self._on_reconnect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A generator that a loop was left of is closed by a task some time later: then the connection would be gone.
        for request_id, stream in list(self._streams.items()):
            await self._left(request_id, stream)
        if self._leaving:
            await asyncio.wait(self._leaving)
        self._connection.on_reconnect.remove(self._on_reconnect)
        await self._subscription.close()
        if self._shared is None:
            await self._connection.close()

    @property
    def connection(self) -> Connection:
        """What it lives on."""
        return self._connection

    @property
    def partitions(self) -> int:
        """How many there are of journals and results."""
        return self._partitions

    async def stream(
        self,
        *,
        model: str = "",
        messages: list[dict[str, Any]] | None = None,
        prompt: str | list[int] | None = None,
        request_id: str = "",
        trace: str = "",
        take: Take | None = None,
        **options: Any,
    ) -> AsyncGenerator[Chunk, None]:
        """The answer's chunks as they come; leaving the loop early cancels the request.

        `options` are the fields of `Request` (stop, n, deadline_s, …) and of `Sampling` (max_tokens, temperature, …).
        `model` may be left out where only one is served; `trace` is a W3C traceparent. `take` is a short way: while the
        loop waits, a chunk that is not the choice's last is handed to it as soon as it is read, and is yielded only
        where it returns false. Raises `RequestFault`.
        """
        request = make_request(
            request_id or new_id(), self.session, model=model, messages=messages, prompt=prompt, options=options
        )
        request_id = request.id
        stream, duplicate = await self._submit(request, trace)
        stream.take = take
        del request, messages, prompt, options  # an answer may be long in coming: nobody need keep the prompt for it
        try:
            async with self._following(stream) if duplicate else contextlib.nullcontext():
                async for chunk in stream:
                    yield chunk
        finally:
            stream.close()
            await self._left(request_id, stream)

    async def complete(self, **arguments: Any) -> Completion:
        """The whole answer. Takes what `stream` takes. Raises `RequestFault`."""
        request_id = str(arguments.pop("request_id", "") or new_id())
        return await completed(request_id, self.stream(request_id=request_id, **arguments))

    async def attach(
        self,
        request_id: str,
        *,
        from_token: int = 0,
        from_text: int | None = None,
        choice: int | None = None,
        patience_s: float | None = None,
        take: Take | None = None,
    ) -> AsyncGenerator[Chunk, None]:
        """The answer to a request of this tenant that somebody sent: what is stored, then what comes, to its end.

        The ids go on with token `from_token`. The text goes on exactly at `from_text` (how many code points the caller
        has); without it where the piece of the answer begins that holds that token, and then the text so far is
        `text[:chunk.text_from] + chunk.text`. Both count for every choice; `choice` reads that one alone. `take` as in
        `stream`. Leaving cancels nothing.

        While nothing new is heard it waits as long as anything of the tenant is queued or runs, or for `patience_s`
        seconds. Raises `RequestFault`: that of the answer, `lost_state` when nothing, or not all, is stored of it,
        `invalid_request` when the answer ended before the start.
        """
        check_start(request_id, from_token, from_text, choice)
        assembly = AnswerAssembly(start=Start(from_token, from_text), only=choice)
        place = AnswerPlace.of(self.tenant, request_id, self._partitions)
        patience = WhileAnythingWaits(self._connection, self.tenant, patience_s)
        stream = AnswerStream(self._connection, place, assembly, patience)
        stream.take = take
        async with self._following(stream):
            async for chunk in stream:
                yield chunk

    async def cancel(self, request_id: str) -> None:
        """Stops a request of this tenant wherever it is. Its answer ends with the fault `cancelled`."""
        await put_cancel(self._connection, f"{self.tenant}.{request_id}", Cancel(self.session))

    async def _left(self, request_id: str, stream: AnswerStream) -> None:
        """Nobody reads the stream any more. Says so once, to the end also where the caller has no time for it."""
        if self._streams.get(request_id) is not stream:
            return
        del self._streams[request_id]
        if not stream.ended and self.cancels_when_left:
            leaving = asyncio.create_task(self._cancel_left(request_id))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await asyncio.shield(leaving)

    async def _cancel_left(self, request_id: str) -> None:
        try:
            await self.cancel(request_id)
        except BrokerError as error:
            log.warning("client.not_cancelled", request_id=request_id, error=str(error))

    async def tokenize(self, *, model: str = "", **what: Any) -> TokenizeAnswer:
        """The ids that a request would have: `prompt=…`, or `messages=…`, and the other fields of `TokenizeRequest`.

        Raises `RequestFault`, `unavailable` where nobody answers.
        """
        request = make_tokenize_request(model, what)
        return await self._tokenizing.tokenize(await self.slug(model), request)

    async def detokenize(self, tokens: list[int], *, model: str = "") -> str:
        """The text of token ids, control tokens too. Raises `RequestFault`, `unavailable` where nobody answers."""
        request = DetokenizeRequest(tokens=tokens, model=model)
        return (await self._tokenizing.detokenize(await self.slug(model), request)).prompt

    async def models(self) -> list[ModelCard]:
        """What is served. Raises `RequestFault`."""
        with broker_faults():
            return await self._registry.models()

    async def slug(self, model: str) -> str:
        """The subject token of a model's name, alias or slug; for "" that of the only one. Raises `RequestFault`."""
        if model not in self._slugs:
            cards = await self.models()
            if not model and len(cards) != 1:
                names = ", ".join(card.name for card in cards)
                raise RequestFault("model_not_found", f"name one of {names}" if names else "none is served", "model")
            named = [card.slug for card in cards if not model or card.answers_to(model)]
            if not named:
                return slug(model)
            self._slugs[model] = named[0]
        return self._slugs[model]

    async def is_served(self, model: str, within_s: float = 1.2) -> bool:
        """Whether a worker of the model is heard within that time (one beats every 0.5 s).

        Needs the permission to subscribe to `hr.worker.<model>.*`; without it none is heard.
        """
        return await worker_heard(self._connection, await self.slug(model), within_s)

    async def _submit(self, request: Request, trace: str = "") -> tuple[AnswerStream, bool]:
        """Publishes it, its results routed to the stream from before that on; whether its id had been used before."""
        subject = subjects.request(self.tenant, await self.slug(request.model))
        if request.id in self._streams:
            raise RequestFault("invalid_request", "is being answered in this client already", "id")
        place = AnswerPlace.of(self.tenant, request.id, self._partitions)
        assembly = AnswerAssembly(max(request.n, 1))  # a wrong n is answered on choice 0
        stream = AnswerStream(self._connection, place, assembly, UntilDeadline(request.deadline_s))
        self._streams[request.id] = stream
        try:
            return stream, await submit(self._publisher, subject, request, self._names.of(place.key), trace)
        except BaseException as error:
            del self._streams[request.id]
            if isinstance(error, asyncio.CancelledError) and self.cancels_when_left:
                await self.cancel(request.id)  # it may be stored already
            raise

    @contextlib.asynccontextmanager
    async def _following(self, stream: AnswerStream) -> AsyncGenerator[None, None]:
        """Results of another session reach the stream: live ones from here on, then those that are stored already."""
        subscription = await self._connection.listen(stream.place.subject, stream.arrived)
        self._followed.add(stream)
        try:
            await self._prove_subscription()
            stream.look_again()
            yield
        finally:
            self._followed.discard(stream)
            stream.close()
            await subscription.close()

    async def _prove_subscription(self) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._connection.wait_connected()
                await self._connection.prove_subscriptions()
        except (Unavailable, TimeoutError) as error:
            raise RequestFault("unavailable", f"no broker within {self._patience_s:.0f} s") from error

    def _on_result(self, message: Inbound) -> None:
        stream = self._streams.get(message.subject.rpartition(".")[2])
        if stream is not None:
            stream.arrived(message)

    def _on_reconnect(self) -> None:
        for stream in (*self._streams.values(), *self._followed):
            stream.look_again()


def _from_environment() -> BrokerOptions:
    url = os.environ.get("HEADRACE_NATS_URL", BrokerOptions.url)
    return BrokerOptions(url, "headrace-client", identity=os.environ.get("HEADRACE_NATS_IDENTITY", ""))


def new_id() -> str:
    """A fresh request id."""
    return secrets.token_hex(12)
