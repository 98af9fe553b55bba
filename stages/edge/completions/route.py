"""`POST /v1/completions`."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

import msgspec
from fastapi import Request, Response

from broker.answer_stream import Take
from broker.chunk import Chunk
from schemas.openai import TextCompletion
from stages.edge.access.callers import CallerDep
from stages.edge.completions.answer import TextStyle, WholeText
from stages.edge.completions.body import CompletionBody
from stages.edge.completions.prompts import merged
from stages.edge.completions.request import asked_of
from stages.edge.completions.stream import TextStream
from stages.edge.gateway import GatewayDep
from stages.edge.generation.answering import FINGERPRINT, answers, note_usage
from stages.edge.generation.frames import AnswerHead
from stages.edge.generation.prompt_tokens import prompt_ids, prompt_text
from stages.edge.generation.submitting import Submission
from stages.edge.generation.translation import Asked, wants_continuous_usage, wants_usage
from stages.edge.generation.usage import UsageCount
from stages.edge.http.body import json_router
from stages.edge.http.departures import unless_gone
from stages.edge.http.event_stream import EventStream
from stages.edge.http.exchange import Exchange, exchange_of
from stages.edge.http.shortcut import Shortcut

router = json_router(tags=["completions"])

Answers = AsyncGenerator[tuple[int, Chunk], None]


@router.post("/v1/completions", response_class=Response, responses=answers("A text completion.", TextCompletion))
async def completions(request: Request, body: CompletionBody, gateway: GatewayDep, caller: CallerDep) -> Response:
    """What follows a prompt, or each of several, whole or streamed. OpenAI's parameters, and vLLM's beside them."""
    asked = asked_of(body)
    submission = await Submission.of(request, gateway, caller, body.model)
    style = await _style(body, asked, submission)
    head = AnswerHead(f"cmpl-{submission.id}", "text_completion", int(time.time()), submission.card.name)
    if not body.stream:
        return await unless_gone(request, _whole(exchange_of(request), head, style, submission, asked))
    stream = TextStream(
        head, style, FINGERPRINT, usage=wants_usage(body), continuous_usage=wants_continuous_usage(body)
    )
    shortcut = Shortcut(stream.plain)
    events = _events(exchange_of(request), stream, _answers(submission, asked, shortcut.take))
    return EventStream(events, keep_alive_s=gateway.settings.keep_alive_s, shortcut=shortcut)


def _answers(submission: Submission, requests: list[Asked], take: Take) -> Answers:
    """`take` as in `Headrace.stream`: for a single prompt alone."""
    if len(requests) == 1:
        return _numbered(submission.stream(requests[0], take=take))
    return merged([submission.stream(each, str(index)) for index, each in enumerate(requests)])


async def _numbered(chunks: AsyncGenerator[Chunk, None]) -> Answers:
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            yield 0, chunk


async def _events(exchange: Exchange, stream: TextStream, chunks: Answers) -> AsyncGenerator[bytes, None]:
    with note_usage(exchange, stream.count):
        async with contextlib.aclosing(chunks):
            async for prompt, chunk in chunks:
                if event := stream.push(chunk, prompt):
                    yield event
        yield stream.end()


async def _whole(
    exchange: Exchange, head: AnswerHead, style: TextStyle, submission: Submission, asked: list[Asked]
) -> Response:
    answer, count = WholeText(style), UsageCount()

    def take(chunk: Chunk, prompt: int = 0) -> bool:
        answer.push(chunk, prompt)
        count.push(chunk, prompt)
        return True

    with note_usage(exchange, count):
        async with contextlib.aclosing(_answers(submission, asked, take)) as chunks:
            async for prompt, chunk in chunks:
                take(chunk, prompt)
    completion = TextCompletion(
        id=head.id,
        created=head.created,
        model=head.model,
        choices=answer.choices(),
        usage=count.total(),
        system_fingerprint=FINGERPRINT,
    )
    return Response(msgspec.json.encode(completion), media_type="application/json")


async def _style(body: CompletionBody, requests: list[Asked], submission: Submission) -> TextStyle:
    echo: list[str] = []
    ids: list[list[int]] = []
    if body.echo:
        echo = await asyncio.gather(*(prompt_text(submission, each) for each in requests))
    if body.return_token_ids:
        ids = await asyncio.gather(*(prompt_ids(submission, each) for each in requests))
    return TextStyle(
        n=1 if body.n is None else body.n,
        logprobs=body.logprobs is not None,
        token_ids=bool(body.return_token_ids),
        echo=tuple(echo),
        prompt_ids=tuple(ids),
    )
