"""`Idempotency-Key`: who sends a request again, to whatever edge, gets the answer of the first one, never a second one.

The key gives the request its id (`headers.request_id_of`), so that Headrace answers it once. What the first call said
is kept under that id: the same key with another body is refused. A request with a key goes on when its client is gone,
since the client may come back for it.
"""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request

from broker.assembly import Chunk
from broker.client import Headrace
from broker.recall import Recall
from schemas.faults import RequestFault
from schemas.kept_request import KeptRequest
from stages.edge.http.errors import ApiError
from stages.edge.http.exchange import exchange_of
from stages.edge.http.headers import idempotency_key_of


def said_by(request: Request) -> KeptRequest | None:
    """What a call with a key says, None for one without. Its body has to be read."""
    if not idempotency_key_of(request):
        return None
    return KeptRequest(endpoint=request.url.path, created_at=int(time.time()), digest=exchange_of(request).body_digest)


async def answer_to(
    client: Headrace, said: KeptRequest | None, *, request_id: str, **options: Any
) -> AsyncGenerator[Chunk, None]:
    """The chunks that the call gets: `Headrace.stream` with these `options`, or with a key those that the first got.

    Raises `RequestFault`, and `ApiError` 409 for a key that meant another request.
    """
    chunks = client.stream(request_id=request_id, **options)
    if said is not None:
        recall = Recall(client)
        first = await keep_first(recall, request_id, said)
        await hand_in(recall, request_id, repeated=first is not None, **options)
        chunks = client.attach(request_id)
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk


async def keep_first(recall: Recall, request_id: str, said: KeptRequest) -> KeptRequest | None:
    """Keeps what a call says, unless it is a repetition: then what the first one said. Raises `ApiError` 409."""
    first = await recall.kept.put_first(request_id, said)
    if first is not None and (first.endpoint, first.digest) != (said.endpoint, said.digest):
        message = "this Idempotency-Key was used for another request"
        raise ApiError(409, message, param="Idempotency-Key", code="idempotency_key_reused")
    return first


async def hand_in(recall: Recall, request_id: str, *, repeated: bool, **options: Any) -> None:
    """Submits a request that nobody need wait for; what is refused at once is not kept. Raises `RequestFault`.

    A repeated one that has no answer yet is submitted again: the edge that had it first may have died before it did.
    """
    if repeated and (await recall.stored(request_id)).begun:
        return
    try:
        await recall.submit(request_id=request_id, **options)
    except RequestFault as fault:
        if not repeated and fault.code != "unavailable":  # then it may be stored after all
            await recall.kept.remove(request_id)
        raise
