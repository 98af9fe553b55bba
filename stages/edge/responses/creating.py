"""A new response: what is kept of it, and where its answer comes from."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from broker.assembly import Chunk
from broker.client import Headrace
from broker.recall import Recall
from schemas.faults import RequestFault
from schemas.kept_request import KeptRequest
from stages.edge.generation.idempotency import hand_in, keep_first
from stages.edge.http.errors import error_of
from stages.edge.responses.asking import options_of
from stages.edge.responses.body import CreateResponse
from stages.edge.responses.input_items import input_items
from stages.edge.responses.lookup import conversation_of
from stages.edge.responses.stored import StoredResponse, stored_response

NEVER_IN = ("busy", "too_large")
"""With these a request was not accepted: under load, what is kept of such ones would push out others."""


@dataclass(frozen=True)
class NewResponse:
    """A response, and what it asks of Headrace (`Headrace.stream`'s options but for the id)."""

    stored: StoredResponse
    options: dict[str, Any]

    @classmethod
    async def of(cls, body: CreateResponse, recall: Recall, request_id: str, model: str) -> "NewResponse":
        """Raises `RequestFault` and `ApiError` for what is not served. `model` is the one that answers."""
        _check_store(body)
        items = input_items(body.input)
        if body.previous_response_id:
            items = [*await conversation_of(recall, body.previous_response_id), *items]
        options = {**options_of(body, items), "model": model}
        said = body.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"input", "stream"})
        return cls(StoredResponse(request_id, int(time.time()), {**said, "model": body.model or model}, items), options)


async def begin(
    new: NewResponse, recall: Recall, said: KeptRequest | None, trace: str
) -> tuple[StoredResponse, AsyncGenerator[Chunk, None]]:
    """The response, and its answer's chunks: leaving them cancels it, unless it is one that outlives its client.

    With a key (`said`) that was used before it is the first one. Raises `RequestFault`, `ApiError` 409.
    """
    stored = new.stored
    first = await _keep(stored, recall, said)
    if first is not None:
        stored = stored_response(stored.request_id, first) or replace(stored, created_at=first.created_at)
    if said is None and not stored.background:
        return stored, _attended(recall.client, recall, new, trace)
    await hand_in(recall, stored.request_id, repeated=first is not None, trace=trace, **new.options)
    return stored, recall.client.attach(stored.request_id)


async def _keep(stored: StoredResponse, recall: Recall, said: KeptRequest | None) -> KeptRequest | None:
    """What the first call with this key said; None for the first one itself, and for calls without a key."""
    if said is not None:
        return await keep_first(recall, stored.request_id, stored.kept(said.digest))
    if stored.body.get("store") is not False:
        await recall.kept.put_first(stored.request_id, stored.kept())
    return None


async def _attended(client: Headrace, recall: Recall, new: NewResponse, trace: str) -> AsyncGenerator[Chunk, None]:
    request_id = new.stored.request_id
    try:
        async with aclosing(client.stream(request_id=request_id, trace=trace, **new.options)) as chunks:
            async for chunk in chunks:
                yield chunk
    except RequestFault as fault:
        if fault.code in NEVER_IN:
            await recall.kept.remove(request_id)
        raise


def _check_store(body: CreateResponse) -> None:
    if body.background and body.store is False:
        raise error_of("invalid_request", "a response in background has to be stored", "store")
