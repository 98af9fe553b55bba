"""Asking the tokenizer service: a client's question becomes a message, and what stands in its way becomes a fault."""

import asyncio
import time
from typing import Any, TypeVar

import msgspec

from broker import subjects
from broker.connection import BrokerError, Connection, Inbound, NoResponders, NotSendable, TooLarge
from broker.registry import Registry
from broker.service import ERROR_CODE_HEADER, ERROR_HEADER
from schemas.codec import CONTENT_TYPES, WireError, convert, decode, encode
from schemas.faults import FaultCode, RequestFault
from schemas.tokenization import DetokenizeAnswer, DetokenizeRequest, ServiceRefusal, TokenizeAnswer, TokenizeRequest

ABSENCE_S = 2.0
"""A replica that starts again is away for that long."""

RETRY_S = 0.2

_OF_THE_SERVICE: dict[str, FaultCode] = {"413": "too_large", "503": "unavailable"}
"""Errors of the service itself, which come without a body."""

Answer = TypeVar("Answer", bound=msgspec.Struct)


def make_tokenize_request(model: str, what: dict[str, Any]) -> TokenizeRequest:
    """`what` are fields of `TokenizeRequest`. Raises `RequestFault` for what it cannot hold."""
    if unknown := what.keys() - set(TokenizeRequest.__struct_fields__):
        raise RequestFault("invalid_request", "is not known here", min(unknown))
    try:
        return convert({**what, "model": model}, TokenizeRequest)
    except WireError as error:
        raise RequestFault("invalid_request", error.reason, error.field) from error


class Tokenizing:
    """The tokenizer service as a client sees it. An answer is awaited for `patience_s` seconds at most."""

    def __init__(self, connection: Connection, registry: Registry, patience_s: float) -> None:
        self._connection = connection
        self._registry = registry
        self._patience_s = patience_s

    async def tokenize(self, slug: str, request: TokenizeRequest) -> TokenizeAnswer:
        """Raises `RequestFault`."""
        return await self._answer(subjects.tokenize(slug), slug, request, TokenizeAnswer)

    async def detokenize(self, slug: str, request: DetokenizeRequest) -> DetokenizeAnswer:
        """Raises `RequestFault`."""
        return await self._answer(subjects.detokenize(slug), slug, request, DetokenizeAnswer)

    async def _answer(self, subject: str, slug: str, request: msgspec.Struct, kind: type[Answer]) -> Answer:
        try:
            data = encode(request)
        except WireError as error:
            raise RequestFault("invalid_request", error.reason, error.field) from error
        try:
            return _read(await self._ask(subject, slug, data), kind)
        except TooLarge as error:
            reason = f"the request takes {len(data)} bytes as a message, which is more than one may have"
            raise RequestFault("too_large", reason) from error
        except NotSendable as error:
            raise RequestFault("invalid_request", str(error), "model") from error
        except (BrokerError, WireError) as error:
            raise RequestFault("unavailable", f"no answer from the tokenizer service: {error}") from error

    async def _ask(self, subject: str, slug: str, data: bytes) -> Inbound:
        """Asked again only where nobody got the question: one that ends a replica may not end the next too."""
        until = time.monotonic() + min(ABSENCE_S, self._patience_s)
        headers = {"Content-Type": CONTENT_TYPES["msgpack"]}
        while True:
            try:
                return await self._connection.request(subject, data, self._patience_s, headers)
            except NoResponders:
                await self._refuse_unknown(slug)
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _refuse_unknown(self, slug: str) -> None:
        cards = await self._registry.models()
        if all(card.slug != slug for card in cards):
            served = f"served are {', '.join(card.name for card in cards)}" if cards else "no model is served"
            raise RequestFault("model_not_found", f"there is no model {slug!r}; {served}", "model")


def _read(answer: Inbound, kind: type[Answer]) -> Answer:
    """Raises `RequestFault` where the service refused, `WireError` for what is no answer."""
    if ERROR_HEADER in answer.headers:
        try:
            fault = decode(ServiceRefusal, answer.data).fault
        except WireError:
            code = _OF_THE_SERVICE.get(answer.headers.get(ERROR_CODE_HEADER, ""), "internal")
            raise RequestFault(code, answer.headers[ERROR_HEADER]) from None
        raise RequestFault(fault.code, fault.message, fault.param)
    return decode(kind, answer.data)
