"""Server-sent events: what a stream's client gets, from the first byte to the last, or until it leaves.

The format is that of the HTML standard (https://html.spec.whatwg.org/multipage/server-sent-events.html): an event is
one `data:` line and an empty one. OpenAI's streams end with `data: [DONE]`, which their generators yield themselves.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from json.encoder import encode_basestring_ascii
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stages.edge.http.departures import present
from stages.edge.http.errors import CLIENT_GONE, ClientGone
from stages.edge.http.exchange import exchange_in
from stages.edge.http.failures import error_for
from stages.edge.http.line import line_of
from stages.edge.http.shortcut import Shortcut
from stages.edge.http.silence import Silence

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

_NOT_ASCII = re.compile("[^\x00-\x7f]+")


def sse(data: Any, event: str = "") -> bytes:
    """One event: `data` as JSON in ASCII alone (bytes: JSON already), named `event` where it has a name.

    Readers that split by `str.splitlines` cut at U+2028, U+2029 and U+0085 too: none of them may stand in a line.
    """
    encoded = data if isinstance(data, bytes) else msgspec.json.encode(data)
    if not encoded.isascii():
        encoded = ascii_json(encoded)
    return b"event: %b\ndata: %b\n\n" % (event.encode(), encoded) if event else b"data: %b\n\n" % encoded


def ascii_json(encoded: bytes) -> bytes:
    """The same JSON with everything outside ASCII as `\\uXXXX`. It stands in strings only, so runs can be replaced."""
    return _NOT_ASCII.sub(lambda run: encode_basestring_ascii(run[0])[1:-1], encoded.decode()).encode("ascii")


class EventStream(Response):
    """Sends what `events` yields, each as it is: one or more whole events (`sse`, `DONE`).

    Status and headers go out with the first event, or after `first_wait_s` of silence (default: `keep_alive_s`): a
    fault before that is a plain JSON error with its status. Later it is one `data:` error object, and the stream ends
    without `[DONE]`. After `keep_alive_s` seconds of silence a comment line goes out. A client that reads slowly holds
    up `events`; one that leaves has it closed: **wrap what a generator iterates over in `contextlib.aclosing`**, so
    that its end reaches `Headrace.stream`, which cancels the request. `renames` as in `api_error_of`. What `shortcut`
    takes goes out beside `events`, while these wait.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        keep_alive_s: float = 5.0,
        first_wait_s: float | None = None,
        renames: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        shortcut: Shortcut | None = None,
    ) -> None:
        self._events = events
        self._shortcut = shortcut or Shortcut(lambda _: b"")
        self._keep_alive_s = keep_alive_s
        self._first_wait_s = keep_alive_s if first_wait_s is None else first_wait_s
        self._renames = renames
        self._open = False
        self._writing = asyncio.Lock()
        self._comment: asyncio.Task[None] | None = None
        self.status_code = 200
        self.background = None
        self.media_type = "text/event-stream"
        # nginx holds back what it proxies unless it is told not to.
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        exchange = exchange_in(scope)
        exchange.streamed = True
        rest = partial(self._run, scope, receive, send)
        if exchange.unwinds:
            exchange.rest = rest
        else:
            await rest()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._send = send
        self._line = line_of(scope)
        self._silence = Silence(self._keep_alive_s, self._break_silence, self._first_wait_s)
        exchange = exchange_in(scope)
        try:
            await self._pump(receive)
        except ClientGone:
            exchange.status, exchange.outcome = CLIENT_GONE, "client_gone"
            return
        except Exception as error:  # noqa: BLE001 — whatever it is, the client is told
            await self._fail(scope, receive, error)
            return
        except asyncio.CancelledError as error:  # the process stops, and waits no longer
            await self._fail(scope, receive, error)
            raise
        await self._write(b"", more=False)

    async def _pump(self, receive: Receive) -> None:
        self._shortcut.write = self._write_at_once
        try:
            async with present(receive, self._line), contextlib.aclosing(self._events):
                async for event in self._events:
                    await self._write(event)
        finally:
            self._shortcut.write = None
            self._silence.end()
            if self._comment is not None:
                self._comment.cancel()  # and its write ends, before another answer may begin
                await asyncio.gather(self._comment, return_exceptions=True)

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        """One at a time. Cut off before the headers are out, the answer has not begun."""
        async with self._writing:
            if not self._open:
                await self._send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                self._open = True
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._silence.hear()

    def _write_at_once(self, data: bytes) -> bool:
        """False where the headers are not out, or something waits before it."""
        if self._line is None or not self._open or self._writing.locked() or not self._line.write(data):
            return False
        self._silence.hear()
        return True

    def _break_silence(self) -> None:
        """Never inside an event: each is one write. Not while one waits for a slow reader."""
        if not self._writing.locked():
            self._comment = asyncio.create_task(self._write(KEEP_ALIVE))

    async def _fail(self, scope: Scope, receive: Receive, error: BaseException) -> None:
        answer = await error_for(scope, error, self._renames)
        if self._open:
            await self._write(sse(answer.body), more=False)
        else:
            await answer.response()(scope, receive, self._send)
