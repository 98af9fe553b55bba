"""A response told to its client: as events, or whole. What a client has already is left out."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response

from broker.chunk import Chunk
from schemas.faults import RequestFault
from stages.edge.http.event_stream import EventStream, sse
from stages.edge.http.exchange import Exchange, exchange_of
from stages.edge.responses.answer import Answer
from stages.edge.responses.asking import api_error
from stages.edge.responses.items import Json
from stages.edge.responses.numbering import Numbering

READING = ("unavailable", "lost_state")
"""Faults of reading an answer: they say nothing of the response itself."""

CANCEL_S = 10.0
"""How long a cancel waits for the end that it brings about."""


def streamed(
    request: Request,
    answer: Answer,
    chunks: AsyncGenerator[Chunk, None],
    keep_alive_s: float,
    *,
    after: int = -1,
    wait_s: float = 0.0,
) -> EventStream:
    """The events of `answer`, which is empty so far, from behind number `after` on; `wait_s` as in `events`."""

    async def noted() -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(events(answer, chunks, after=after, wait_s=wait_s)) as told:
                async for event in told:
                    yield event
        except RequestFault as fault:
            raise api_error(fault.fault) from fault
        finally:
            note(exchange, answer)

    exchange = exchange_of(request)
    return EventStream(noted(), keep_alive_s=keep_alive_s)


async def events(
    answer: Answer, chunks: AsyncGenerator[Chunk, None], *, after: int = -1, wait_s: float = 0.0
) -> AsyncGenerator[bytes, None]:
    """The events behind number `after`, to the last.

    For `wait_s` seconds without a chunk nothing is told, and a fault is raised: so a refusal becomes a plain error. A
    later one is the last event, but for those of reading the answer.
    """
    numbering = Numbering(after)
    async with aclosing(_told(answer, chunks, wait_s)) as told:
        async for bodies in told:
            for event in numbering.numbered(bodies):
                yield sse(json.dumps(event).encode(), event["type"])


async def whole(answer: Answer, chunks: AsyncGenerator[Chunk, None]) -> None:
    """Fills the answer to its end. Raises `RequestFault`, but for a cancel, which a response shows as its status."""
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                answer.push(chunk)
        except RequestFault as fault:
            if fault.code != "cancelled":
                raise
            answer.fail(fault.fault)


async def end_of(answer: Answer, chunks: AsyncGenerator[Chunk, None]) -> Answer:
    """The answer to its end, whatever that is, or as far as it comes within 10 s."""
    try:
        async with asyncio.timeout(CANCEL_S):
            await whole(answer, chunks)
    except TimeoutError:
        pass
    except RequestFault as fault:
        if fault.code in READING:
            raise
        answer.fail(fault.fault)
    return answer


def json_answer(said: Answer | Json) -> Response:
    """A response, or another object, as the whole answer."""
    data = json.dumps(said.response() if isinstance(said, Answer) else said)
    return Response(data, media_type="application/json")


def note(exchange: Exchange, answer: Answer) -> None:
    """For the log and the metrics: what was used, and how it ended."""
    if answer.usage is not None:
        exchange.count(answer.usage.prompt_tokens, answer.usage.completion_tokens)
    exchange.outcome = exchange.outcome or answer.status


async def _told(answer: Answer, chunks: AsyncGenerator[Chunk, None], wait_s: float) -> AsyncGenerator[list[Json], None]:
    async with aclosing(chunks), _first_of(chunks) as first:
        await asyncio.wait({first}, timeout=wait_s)
        if wait_s and first.done():
            first.result()  # a refusal is raised before anything is told
        yield answer.opening()
        try:
            chunk = await first
            while chunk is not None:
                yield answer.push(chunk)
                chunk = await anext(chunks, None)
        except RequestFault as fault:
            if fault.code in READING:
                raise
            yield answer.fail(fault.fault)


@asynccontextmanager
async def _first_of(chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[asyncio.Task[Chunk | None], None]:
    """The first chunk as it is awaited: given up at the end, if it has not come."""

    async def first() -> Chunk | None:
        return await anext(chunks, None)

    task = asyncio.create_task(first())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
