"""One connection of a client: HTTP/1.1 as uvicorn reads it, with an end to what it reads, and an end that all hear of.

uvicorn on httptools leaves four things open. What is no body (a request's line and headers, trailers, the extensions
of chunks) may be of any length, and is copied again with each piece of it. A request that offers to go on in another
protocol (`Upgrade: h2c`, as curl sends with `--http2`) loses its body, though a server may ignore the offer (RFC 9110,
7.8). A client that leaves while it has a second request waiting is gone for that one alone: the first runs on. And who
sends requests without end, of which one is answered after the other, has all of them kept.
"""

import asyncio

import httptools
import structlog
from starlette.responses import Response
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from stages.edge.http.errors import ApiError
from stages.edge.http.line import Line
from stages.edge.http.upload import CLOSE

log = structlog.get_logger()

MAX_HEAD_BYTES = 64 * 1024
MAX_PIPELINED = 64
"""Requests that wait on a connection for the answer before theirs. Reading goes on meanwhile: it shows who has left."""

LINGER_S = 1.0
"""How long more is read and thrown away once a request is refused: closed at once, many clients never see why."""

HEAD_TOO_LARGE = ApiError(431, f"the head may have {MAX_HEAD_BYTES} bytes", code="too_large", headers=CLOSE)
TOO_MANY = ApiError(
    429, f"{MAX_PIPELINED} requests may wait on one connection", code="too_many_pipelined", headers=CLOSE
)
NO_HTTP = ApiError(400, "this is no valid HTTP request", code="invalid_http", headers=CLOSE)


class ClientConnection(HttpToolsProtocol):
    """uvicorn's protocol; a head over `MAX_HEAD_BYTES` is a 431, what is no HTTP a 400, both in the envelope."""

    _running: RequestResponseCycle | None = None
    _line: Line | None = None
    _refused = False
    _in_head = False
    _head_bytes = 0
    """Of the lines of the head (or the trailers) that are complete."""

    _bytes_between = 0
    """Came since the last head or piece of a body was complete, up to one read less."""

    _progress = False

    def data_received(self, data: bytes) -> None:
        """From the transport."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._progress = False
        size = len(data)
        while data:
            data = self._parse(data)
        self._bytes_between = 0 if self._progress else self._bytes_between + size
        if self._bytes_between > MAX_HEAD_BYTES and not self._refused:
            self._refuse(HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        """From the parser, as are those below."""
        self._in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the path."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer: nobody asks for those, and they must not become headers of what runs already."""
        self._count(len(name) + len(value))
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request begins, unless it has to be read again."""
        self._progress = True
        self._in_head = False
        self._head_bytes = 0
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests wait")  # the parser stops: `_parse`
        if not self.parser.should_upgrade():
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise ValueError("this is no proxy")

    def on_body(self, body: bytes) -> None:
        """A piece of it."""
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of the request is there, its body too."""
        self._progress = True
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the request that runs; uvicorn tells the one that came last."""
        super().connection_lost(exc)
        if running := self._unanswered():
            running.disconnected = True
            running.message_event.set()
        if self._line is not None:
            self._line.lose()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        self._line = Line(self.transport, self.flow)
        self._line.put_in(cycle.scope)
        super()._start_asgi_task(cycle, app)

    def _parse(self, data: bytes) -> bytes:
        """What has to be parsed again."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            return self._head_without_upgrade() + data[offer.args[0] :]
        except httptools.HttpParserError:
            self._refuse(self._problem())
        return b""

    def _problem(self) -> ApiError:
        if self._head_bytes > MAX_HEAD_BYTES:
            return HEAD_TOO_LARGE
        return TOO_MANY if len(self.pipeline) >= MAX_PIPELINED else NO_HTTP

    def _head_without_upgrade(self) -> bytes:
        """The request's head for a new parser: this one takes what follows for another protocol's."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn
        return b"\r\n".join([*lines, b"", b""])

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ValueError("the head is too large")  # the parser stops: `_parse`

    def _refuse(self, error: ApiError) -> None:
        self._refused = True
        log.info("edge.refused", status=error.status, code=error.code)
        if self._unanswered():  # another answer cannot begin in the middle of one
            self.transport.close()
            return
        self.transport.write(_as_sent(error.response()))
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)

    def _unanswered(self) -> RequestResponseCycle | None:
        return None if self._running is None or self._running.response_complete else self._running


def _as_sent(response: Response) -> bytes:
    headers = b"".join(b"%b: %b\r\n" % header for header in response.raw_headers)
    return STATUS_LINE[response.status_code] + headers + b"\r\n" + bytes(response.body)
