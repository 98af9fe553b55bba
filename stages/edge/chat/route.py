"""`POST /v1/chat/completions`."""

import contextlib
import time
from collections.abc import AsyncGenerator

import msgspec
from fastapi import Request, Response
from msgspec import UNSET

from broker.chunk import Chunk
from schemas.openai import ChatCompletion
from stages.edge.access.callers import CallerDep
from stages.edge.chat.answer import ROLE, ChatStyle, WholeChat
from stages.edge.chat.body import ChatBody, NamedTool
from stages.edge.chat.request import asked_of
from stages.edge.chat.stream import ChatStream
from stages.edge.gateway import GatewayDep
from stages.edge.generation.answering import FINGERPRINT, answers, note_usage
from stages.edge.generation.frames import AnswerHead
from stages.edge.generation.prompt_tokens import prompt_ids
from stages.edge.generation.submitting import Submission
from stages.edge.generation.translation import Asked, wants_continuous_usage, wants_usage
from stages.edge.generation.usage import UsageCount
from stages.edge.http.body import json_router
from stages.edge.http.departures import unless_gone
from stages.edge.http.event_stream import EventStream
from stages.edge.http.exchange import Exchange, exchange_of
from stages.edge.http.shortcut import Shortcut

router = json_router(tags=["chat"])


@router.post("/v1/chat/completions", response_class=Response, responses=answers("A chat completion.", ChatCompletion))
async def chat_completions(request: Request, body: ChatBody, gateway: GatewayDep, caller: CallerDep) -> Response:
    """The next message of a chat, whole or streamed. OpenAI's parameters, and vLLM's beside them."""
    asked = asked_of(body)
    submission = await Submission.of(request, gateway, caller, body.model)
    ids = await prompt_ids(submission, asked) if _style(body).token_ids else None
    if not body.stream:
        return await unless_gone(request, _whole(exchange_of(request), _style(body), submission, asked, ids))
    stream = ChatStream(
        _head(submission, "chat.completion.chunk"),
        _style(body),
        FINGERPRINT,
        usage=wants_usage(body),
        continuous_usage=wants_continuous_usage(body),
        prompt_ids=ids,
    )
    shortcut = Shortcut(stream.plain)
    events = _events(exchange_of(request), stream, submission.stream(asked, take=shortcut.take))
    return EventStream(events, keep_alive_s=gateway.settings.keep_alive_s, shortcut=shortcut)


async def _events(
    exchange: Exchange, stream: ChatStream, chunks: AsyncGenerator[Chunk, None]
) -> AsyncGenerator[bytes, None]:
    with note_usage(exchange, stream.count):
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                if event := stream.push(chunk):
                    yield event
        yield stream.end()


async def _whole(
    exchange: Exchange,
    style: ChatStyle,
    submission: Submission,
    asked: Asked,
    ids: list[int] | None,
) -> Response:
    head = _head(submission, "chat.completion")
    answer, count = WholeChat(style), UsageCount()

    def take(chunk: Chunk) -> bool:
        answer.push(chunk)
        count.push(chunk)
        return True

    with note_usage(exchange, count):
        async with contextlib.aclosing(submission.stream(asked, take=take)) as chunks:
            async for chunk in chunks:
                take(chunk)
    completion = ChatCompletion(
        id=head.id,
        created=head.created,
        model=head.model,
        choices=answer.choices(),
        usage=count.total(),
        system_fingerprint=FINGERPRINT,
        prompt_token_ids=UNSET if ids is None else ids,
    )
    return Response(msgspec.json.encode(completion), media_type="application/json")


def _head(submission: Submission, kind: str) -> AnswerHead:
    return AnswerHead(f"chatcmpl-{submission.id}", kind, int(time.time()), submission.card.name)


def _style(body: ChatBody) -> ChatStyle:
    return ChatStyle(
        logprobs=bool(body.logprobs),
        token_ids=bool(body.return_token_ids) and body.include_reasoning is not False,
        named_tool=isinstance(body.tool_choice, NamedTool),
        echo=_echo(body),
    )


def _echo(body: ChatBody) -> str:
    """What an answer begins with again. Messages of others are none of it, as at vLLM."""
    last = body.messages[-1] if body.messages else None
    if not body.echo or last is None or last.role != ROLE or last.content is None:
        return ""
    return last.content if isinstance(last.content, str) else "".join(part.text for part in last.content)
