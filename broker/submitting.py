"""Handing a request in: what a caller said becomes a message, and what stands in its way becomes a fault."""

import contextlib
from collections.abc import Generator
from typing import Any

import msgspec

from broker.connection import BrokerError, TooLarge
from broker.publisher import Full, Publisher
from schemas.codec import CONTENT_TYPES, WireError, encode
from schemas.faults import RequestFault
from schemas.request import ChatMessage, Request, Sampling

PATIENCE_S = 10.0

_SAMPLING_FIELDS = frozenset(Sampling.__struct_fields__)


def make_request(
    request_id: str,
    session: str,
    *,
    model: str,
    messages: list[dict[str, Any]] | None,
    prompt: str | list[int] | None,
    options: dict[str, Any],
) -> Request:
    """`options` are fields of `Request` and of `Sampling`. Raises `RequestFault` for what no request can hold."""
    if "id" in options:
        raise RequestFault("invalid_request", "is called request_id here", "id")
    sampling = {name: value for name, value in options.items() if name in _SAMPLING_FIELDS}
    others = {name: value for name, value in options.items() if name not in _SAMPLING_FIELDS}
    try:
        return Request(
            id=request_id,
            session=session,
            model=model,
            messages=msgspec.convert(messages, list[ChatMessage] | None),
            prompt=prompt,
            sampling=msgspec.convert(sampling, Sampling),
            **others,
        )
    except (TypeError, msgspec.ValidationError) as error:
        raise RequestFault("invalid_request", str(error)) from error


@contextlib.contextmanager
def broker_faults() -> Generator[None, None, None]:
    """What the broker could not do, as the `RequestFault` `unavailable`."""
    try:
        yield
    except BrokerError as error:
        raise RequestFault("unavailable", str(error)) from error


async def submit(publisher: Publisher, subject: str, message: msgspec.Struct, message_id: str, trace: str = "") -> bool:
    """Stores a request, or a ticket; whether it had been before. `trace` is a traceparent. Raises `RequestFault`."""
    try:
        data = encode(message)
    except WireError as error:
        raise RequestFault("invalid_request", error.reason, error.field) from error
    try:
        stored = await publisher.publish_patiently(
            subject,
            data,
            message_id=message_id,
            content_type=CONTENT_TYPES["msgpack"],
            trace=trace,
            patience_s=PATIENCE_S,
            wait_when_full=False,
        )
    except Full as error:
        raise RequestFault("busy", "the queue of this tenant and model is full") from error
    except TooLarge as error:
        reason = f"the request takes {len(data)} bytes as a message, which is more than one may have"
        raise RequestFault("too_large", reason) from error
    except BrokerError as error:
        raise RequestFault("unavailable", str(error)) from error
    return stored.duplicate
