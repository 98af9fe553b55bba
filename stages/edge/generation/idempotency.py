"""`Idempotency-Key`: who sends a request again, to whatever edge, gets the answer of the first one, never a second one.

Key and body give the request its id (`headers.request_id_of`), so that Headrace answers it once. What the first call
said is kept under the key alone: the same key with another body is refused, unless the first call was refused itself.
A request with a key goes on when its client is gone, since the client may come back for it.
"""

import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from broker.answer_stream import Take
from broker.chunk import Chunk
from broker.client import Headrace
from broker.recall import Recall
from schemas.faults import REFUSALS, RequestFault
from schemas.kept_request import KeptRequest
from stages.edge.http.errors import ApiError
from stages.edge.http.exchange import exchange_of
from stages.edge.http.headers import claim_name, idempotency_key_of, repeated_id


@dataclass(frozen=True)
class Claim:
    """What a call says its key means; kept as `name`, for all requests that the call makes."""

    name: str
    said: KeptRequest


def claim_of(request: Request) -> Claim | None:
    """None for a call without a key. Its body has to be read."""
    key = idempotency_key_of(request)
    if not key:
        return None
    digest = exchange_of(request).body_digest
    return Claim(claim_name(key), KeptRequest(endpoint=request.url.path, created_at=int(time.time()), digest=digest))


def answer_to(
    client: Headrace, claim: Claim | None, take: Take | None = None, *, request_id: str, **options: Any
) -> AsyncGenerator[Chunk, None]:
    """The chunks that the call gets: `Headrace.stream` with these `options`, or with a key those that the first got.

    Raises `RequestFault`, and `ApiError` 409 for a key that meant another request.
    """
    if claim is None:
        return client.stream(request_id=request_id, take=take, **options)
    return _answer_to_first(client, claim, take, request_id, options)


async def _answer_to_first(
    client: Headrace, claim: Claim, take: Take | None, request_id: str, options: dict[str, Any]
) -> AsyncGenerator[Chunk, None]:
    recall = Recall(client)
    first = await first_with(recall, claim)
    async with forgotten_if_refused(recall, [] if first else [claim.name]):
        await hand_in(recall, request_id, repeated=first is not None, **options)
    del options  # with the prompt
    async with aclosing(client.attach(request_id, take=take)) as chunks:
        async for chunk in chunks:
            yield chunk


async def first_with(recall: Recall, claim: Claim) -> KeptRequest | None:
    """What the first call with this key said, None if it is this one: that is kept then. Raises `ApiError` 409."""
    said = claim.said

    async def gives_way(first: KeptRequest) -> bool:
        """A corrected call may have the key of one that was refused."""
        return not _says_the_same(first, said) and await _was_refused(recall, claim.name, first)

    first = await recall.kept.put_first(claim.name, said, gives_way)
    if first is not None and not _says_the_same(first, said):
        message = "this Idempotency-Key was used for another request"
        raise ApiError(409, message, param="Idempotency-Key", code="idempotency_key_reused")
    return first


async def hand_in(recall: Recall, request_id: str, *, repeated: bool, **options: Any) -> None:
    """Submits a request that nobody need wait for. Raises `RequestFault`.

    A repeated one that has no answer yet is submitted again: the edge that had it first may have died before it did.
    """
    if not (repeated and (await recall.stored(request_id)).begun):
        await recall.submit(request_id=request_id, **options)


@contextlib.asynccontextmanager
async def forgotten_if_refused(recall: Recall, names: Sequence[str]) -> AsyncGenerator[None]:
    """What is kept under these names goes where the request is refused: under load, it would push out others."""
    try:
        yield
    except RequestFault as fault:
        if fault.code in REFUSALS:
            with contextlib.suppress(RequestFault):
                for name in names:
                    await recall.kept.remove(name)
        raise


def _says_the_same(first: KeptRequest, said: KeptRequest) -> bool:
    return (first.endpoint, first.digest) == (said.endpoint, said.digest)


async def _was_refused(recall: Recall, claim: str, first: KeptRequest) -> bool:
    """Of several prompts the first one decides. An answer that is not stored any more was one."""
    request_id = repeated_id(claim, first.endpoint, first.digest)
    try:
        answers = [await recall.stored(each) for each in (request_id, f"{request_id}-0")]
    except RequestFault as fault:
        if fault.code == "lost_state":
            return False
        raise
    return any(each.fault is not None and each.fault.code in REFUSALS for each in answers)
