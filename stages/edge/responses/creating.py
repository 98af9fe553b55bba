"""A new response: what is kept of it, and where its answer comes from."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from broker.chunk import Chunk
from broker.recall import Recall
from schemas.kept_request import KeptRequest
from stages.edge.generation.idempotency import Claim, first_with, forgotten_if_refused, hand_in
from stages.edge.http.errors import error_of
from stages.edge.responses.asking import options_of
from stages.edge.responses.body import CreateResponse
from stages.edge.responses.input_items import input_items
from stages.edge.responses.lookup import conversation_of
from stages.edge.responses.stored import StoredResponse, stored_response


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
    new: NewResponse, recall: Recall, claim: Claim | None, trace: str
) -> tuple[StoredResponse, AsyncGenerator[Chunk, None]]:
    """The response, and its answer's chunks: leaving them cancels it, unless it is one that outlives its client.

    With a key (`claim`) that was used before it is the first one. Raises `RequestFault`, `ApiError` 409.
    """
    first = await first_with(recall, claim) if claim is not None else None
    names = [] if first else _names(new.stored, claim)
    async with forgotten_if_refused(recall, names):
        stored = await _keep(new.stored, recall, first)
        if claim is None and not stored.background:
            return stored, _attended(recall, names, new, trace)
        await hand_in(recall, stored.request_id, repeated=first is not None, trace=trace, **new.options)
    return stored, recall.client.attach(stored.request_id)


def _names(stored: StoredResponse, claim: Claim | None) -> list[str]:
    """Under which anything is kept of a new response."""
    return [*([stored.request_id] if stored.is_kept else []), *([claim.name] if claim is not None else [])]


async def _keep(stored: StoredResponse, recall: Recall, first: KeptRequest | None) -> StoredResponse:
    """The response itself, or the one that is kept already, where `first` said so."""
    if stored.is_kept:
        earlier = await recall.kept.put_first(stored.request_id, stored.kept())
        if earlier is not None and (found := stored_response(stored.request_id, earlier)):
            return found
    return replace(stored, created_at=first.created_at) if first is not None else stored


async def _attended(recall: Recall, names: list[str], new: NewResponse, trace: str) -> AsyncGenerator[Chunk, None]:
    chunks = recall.client.stream(request_id=new.stored.request_id, trace=trace, **new.options)
    async with forgotten_if_refused(recall, names), aclosing(chunks):
        async for chunk in chunks:
            yield chunk


def _check_store(body: CreateResponse) -> None:
    if body.background and body.store is False:
        raise error_of("invalid_request", "a response in background has to be stored", "store")
