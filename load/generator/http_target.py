"""Any server that speaks OpenAI's HTTP API: chats are streamed, with their usage at the end."""

import contextlib
import resource
from typing import Any, Self, cast

import aiohttp
import msgspec

from load.generator.connection_errors import in_words
from load.generator.event_stream import EventStream, StreamChunk
from load.generator.record import Record, clock
from load.generator.target import Failed, Unreachable
from load.workload.chats import Chat

DEFAULT_URL = "http://127.0.0.1:8000"
PATIENCE_S = 5.0
ANSWER_S = 600.0
READ_BYTES = 256 * 1024
HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream"}


class HttpTarget:
    """As many connections as requests at once."""

    def __init__(self, url: str, model: str) -> None:
        plain = (url or DEFAULT_URL).rstrip("/")
        self._url = plain if plain.endswith("/v1") else f"{plain}/v1"
        self.model = model

    async def __aenter__(self) -> Self:
        _allow_files()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=PATIENCE_S),
            auto_decompress=False,
            read_bufsize=READ_BYTES,
        )
        try:
            self.model = self._choose(await self._served())
        except Unreachable:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, chat: Chat, record: Record) -> None:
        body = msgspec.json.encode(
            {
                "model": self.model,
                "messages": chat.messages,
                "max_tokens": chat.output,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        try:
            async with self._session.post(f"{self._url}/chat/completions", data=body, headers=HEADERS) as response:
                if response.status != 200:
                    raise Failed(str(response.status), (await response.text())[:500])
                await _read(response.content, record)
        except aiohttp.ClientError as error:
            raise Failed("connection", in_words(error)) from error
        except TimeoutError as error:
            raise Failed("timeout", in_words(error)) from error
        except msgspec.MsgspecError as error:
            raise Failed("unreadable", str(error)) from error

    def _choose(self, served: list[str]) -> str:
        if self.model in served or (not self.model and len(served) == 1):
            return self.model or served[0]
        wrong = f"no model {self.model}; " if self.model else "--model is needed; "
        raise Unreachable(f"{wrong}{self._url} serves {', '.join(served) or 'none'}")

    async def _served(self) -> list[str]:
        """The names of the models. Raises `Unreachable`."""
        try:
            async with self._session.get(f"{self._url}/models", timeout=aiohttp.ClientTimeout(PATIENCE_S)) as response:
                listed: Any = await response.json()
            return [str(model["id"]) for model in cast("list[dict[str, Any]]", listed["data"])]
        except aiohttp.ContentTypeError as error:
            raise Unreachable(f"{self._url}/models answers with no list of models: {in_words(error)}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"no server at {self._url}: {in_words(error)}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise Unreachable(f"{self._url}/models answers with no list of models: {error!r}") from error


def _allow_files() -> None:
    """Every connection is an open file, and often 1,024 are allowed at first: as many as may be."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS says "no limit" and means less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _read(content: aiohttp.StreamReader, record: Record) -> None:
    """To the stream's end. Raises `Failed` for an error in it, or where it breaks off."""
    stream = EventStream()
    while data := await content.readany():
        now = clock()
        for chunk in stream.push(data):
            _take(chunk, record, now)
    if not stream.done:
        raise Failed("broken_off")


def _take(chunk: StreamChunk, record: Record, now: float) -> None:
    if chunk.choices:
        choice = chunk.choices[0]
        if choice.delta.content:
            record.events.append(now)
            record.pieces.append(choice.delta.content)
        if choice.finish_reason:
            record.finish = choice.finish_reason
    if chunk.usage is not None:
        record.prompt_tokens = chunk.usage.prompt_tokens
        record.output_tokens = chunk.usage.completion_tokens
    if chunk.error is not None:
        raise Failed(f"stream_{_code(chunk.error)}", str(chunk.error)[:500])


def _code(error: Any) -> str:
    """Of an error object, `error` where it has none."""
    return str(cast("dict[str, Any]", error).get("code") or "error") if isinstance(error, dict) else "error"
