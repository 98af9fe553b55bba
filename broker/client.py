"""The Python client: requests in, streamed answers out. Speaks only what `docs/protocol.md` says."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncGenerator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from broker import subjects
from broker.answer_stream import AnswerPlace, AnswerStream
from broker.assembly import AnswerAssembly, Chunk, Start
from broker.cancels import put_cancel
from broker.completion import CompletedChoice, Completion, completed
from broker.connection import BrokerOptions, Connection, Inbound, Subscription, Unavailable
from broker.patience import UntilDeadline, WhileAnythingWaits
from broker.publisher import Publisher
from broker.registry import Registry
from broker.submitting import make_request, submit
from broker.topology import count_partitions
from schemas.control import Cancel
from schemas.faults import RequestFault
from schemas.model import ModelCard, slug
from schemas.names import is_id
from schemas.request import Request

__all__ = ["CompletedChoice", "Completion", "Headrace", "new_id"]


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
        self._followed: set[AnswerStream] = set()
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
        request = make_request(
            request_id or new_id(), self.session, model=model, messages=messages, prompt=prompt, options=options
        )
        stream, duplicate = await self._submit(request)
        try:
            async with self._following(stream) if duplicate else contextlib.nullcontext():
                async for chunk in stream:
                    yield chunk
        finally:
            del self._streams[request.id]
            if not stream.ended:
                await self.cancel(request.id)

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
    ) -> AsyncGenerator[Chunk, None]:
        """The answer to a request of this tenant that somebody sent: what is stored, then what comes, to its end.

        The ids go on with token `from_token`. The text goes on exactly at `from_text` (how many code points the caller
        has); without it where the piece of the answer begins that holds that token, and then the text so far is
        `text[:chunk.text_from] + chunk.text`. Both count for every choice; `choice` reads that one alone. Leaving
        cancels nothing.

        While nothing new is heard it waits as long as anything of the tenant is queued or runs, or for `patience_s`
        seconds. Raises `RequestFault`: that of the answer, `lost_state` when nothing, or not all, is stored of it,
        `invalid_request` when the answer ended before the start.
        """
        _check_attach(request_id, from_token, from_text, choice)
        assembly = AnswerAssembly(start=Start(from_token, from_text), only=choice)
        place = AnswerPlace.of(self.tenant, request_id, self._partitions)
        patience = WhileAnythingWaits(self._connection, self.tenant, patience_s)
        stream = AnswerStream(self._connection, place, assembly, patience)
        async with self._following(stream):
            async for chunk in stream:
                yield chunk

    async def cancel(self, request_id: str) -> None:
        """Stops a request of this tenant wherever it is. Its answer ends with the fault `cancelled`."""
        await put_cancel(self._connection, f"{self.tenant}.{request_id}", Cancel(self.session))

    async def models(self) -> list[ModelCard]:
        """What is served."""
        return await self._registry.models()

    async def slug(self, model: str) -> str:
        """The subject token of a model's name, alias or slug; for "" that of the only one. Raises `RequestFault`."""
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

    async def is_served(self, model: str, within_s: float = 1.2) -> bool:
        """Whether a worker of the model is heard within that time (one beats every 0.5 s).

        Needs the permission to subscribe to `hr.worker.<model>.*`; without it none is heard.
        """
        heard = asyncio.Event()

        async def on_worker(_: Inbound) -> None:
            heard.set()

        subscription = await self._connection.subscribe(subjects.worker(await self.slug(model), "*"), on_worker)
        try:
            async with asyncio.timeout(within_s):
                await heard.wait()
        except TimeoutError:
            return False
        finally:
            await subscription.close()
        return True

    async def _submit(self, request: Request) -> tuple[AnswerStream, bool]:
        """Publishes it, its results routed to the stream from before that on; whether its id had been used before."""
        subject = subjects.request(self.tenant, await self.slug(request.model))
        if request.id in self._streams:
            raise RequestFault("invalid_request", "is being answered in this client already", "id")
        place = AnswerPlace.of(self.tenant, request.id, self._partitions)
        assembly = AnswerAssembly(max(request.n, 1))  # a wrong n is answered on choice 0
        stream = AnswerStream(self._connection, place, assembly, UntilDeadline(request.deadline_s))
        self._streams[request.id] = stream
        try:
            return stream, await submit(self._publisher, subject, request, place.key)
        except BaseException:
            del self._streams[request.id]
            raise

    @contextlib.asynccontextmanager
    async def _following(self, stream: AnswerStream) -> AsyncGenerator[None, None]:
        """Results of another session reach the stream: live ones from here on, then those that are stored already."""
        subscription = await self._connection.subscribe(stream.place.subject, stream.arrived)
        self._followed.add(stream)
        try:
            await self._prove_subscription()
            stream.look_again()
            yield
        finally:
            self._followed.discard(stream)
            await subscription.close()

    async def _prove_subscription(self) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._connection.wait_connected()
                await self._connection.prove_subscriptions()
        except (Unavailable, TimeoutError) as error:
            raise RequestFault("unavailable", f"no broker within {self._patience_s:.0f} s") from error

    async def _on_result(self, message: Inbound) -> None:
        stream = self._streams.get(message.subject.rpartition(".")[2])
        if stream is not None:
            await stream.arrived(message)

    def _on_reconnect(self) -> None:
        for stream in (*self._streams.values(), *self._followed):
            stream.look_again()


def new_id() -> str:
    """A fresh request id."""
    return secrets.token_hex(12)


def _check_attach(request_id: str, from_token: int, from_text: int | None, choice: int | None) -> None:
    if not is_id(request_id):
        raise RequestFault("invalid_request", f"{request_id[:64]!r} is no request id", "id")
    for name, value in (("from_token", from_token), ("from_text", from_text or 0), ("choice", choice or 0)):
        if value < 0:
            raise RequestFault("invalid_request", "may not be negative", name)
