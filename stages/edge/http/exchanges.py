"""The outermost layer of the app: every request has its record, a bounded body, one log line, and an end in words."""

import asyncio
import time

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stages.edge.http.errors import CLIENT_GONE, ClientGone
from stages.edge.http.exchange import KEY, Exchange
from stages.edge.http.failures import error_for
from stages.edge.http.headers import echoed_id_of, request_id_of
from stages.edge.http.upload import Upload
from stages.edge.live.recent import Recent
from stages.edge.measures import Measures

log = structlog.get_logger()


class Exchanges:
    """ASGI middleware. What a route raises and nobody has handled ends here, as one error in the envelope."""

    def __init__(
        self, app: ASGIApp, *, measures: Measures, recent: Recent, max_body_bytes: int, body_timeout_s: float
    ) -> None:
        self._app = app
        self._recent = recent
        self._measures = measures
        self._max_body_bytes = max_body_bytes
        self._body_timeout_s = body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = scope[KEY] = Exchange(unwinds=True)
        self._measures.began()
        self._recent.began(exchange)
        upload = Upload(scope, receive, self._max_body_bytes, self._body_timeout_s)
        try:
            await self._serve(scope, upload, _Observed(scope, exchange, send))
        finally:
            for leave in exchange.at_end:
                leave()
            self._finish(scope, exchange)

    async def _serve(self, scope: Scope, upload: Upload, send: "_Observed") -> None:
        try:
            await self._app(scope, upload.receive, send)
            await _finish_outside(scope, send.exchange)
            return
        except ClientGone:
            send.exchange.status, send.exchange.outcome = CLIENT_GONE, "client_gone"
            return
        except Exception as error:  # noqa: BLE001 — the client is told, and the log
            failure: BaseException = error
        except asyncio.CancelledError as error:  # the server stops and its grace time is over: this is our end
            failure = error
        await self._fail(scope, upload, send, failure)

    async def _fail(self, scope: Scope, upload: Upload, send: "_Observed", failure: BaseException) -> None:
        answer = await error_for(scope, failure)
        if send.started:
            return  # cut in the middle: the server closes the connection
        await answer.response()(scope, upload.receive, send)

    def _finish(self, scope: Scope, exchange: Exchange) -> None:
        route = scope.get("route")
        exchange.route = getattr(route, "path", "") or "unknown"
        seconds = time.monotonic() - exchange.started
        self._measures.ended(exchange, scope["method"], seconds)
        self._recent.ended(exchange)
        if exchange.route in QUIET:
            return
        log.info("edge.ended", **_said(scope, exchange, seconds))


QUIET = ("/live", "/ready", "/health", "/metrics", "/live/state", "/live/requests/{request_id}")
"""Asked every few seconds by machines, or by an open page: they would fill the log."""


class _Observed:
    """`send`, with what it says of the answer noted down, and the request's id in its headers."""

    def __init__(self, scope: Scope, exchange: Exchange, send: Send) -> None:
        self.exchange = exchange
        self.started = False
        self._scope = scope
        self._send = send

    async def __call__(self, message: Message) -> None:
        if not self.started and message["type"] == "http.response.start":
            self.started = True
            self.exchange.status = message["status"]
            self.exchange.first_byte_s = time.monotonic() - self.exchange.started
            request = HTTPConnection(self._scope)
            request_id_of(request)  # for the log, if no route has asked for it
            MutableHeaders(scope=message)["x-request-id"] = echoed_id_of(request)
        await self._send(message)


async def _finish_outside(scope: Scope, exchange: Exchange) -> None:
    """What a stream does for the longest time, it does without the frames and the parts of a dozen layers."""
    if exchange.rest is None:
        return
    rest, exchange.rest = exchange.rest, None
    for name in [name for name in scope if name.startswith("fastapi_")]:
        del scope[name]
    await rest()


def _said(scope: Scope, exchange: Exchange, seconds: float) -> dict[str, object]:
    caller = exchange.caller
    tenant = caller.tenant if caller else "default"
    said: dict[str, object] = {
        "request_id": f"{tenant}.{exchange.request_id}" if exchange.request_id else "",
        "method": scope["method"],
        "route": exchange.route,
        "status": exchange.status,
        "outcome": exchange.outcome,
        "seconds": round(seconds, 4),
        "model": exchange.model,
        "key": caller.name if caller else "",
    }
    if exchange.input_tokens:
        said |= {"input_tokens": exchange.input_tokens, "output_tokens": exchange.output_tokens}
    if exchange.streamed:
        said["first_byte_s"] = round(exchange.first_byte_s or 0.0, 4)
    return {name: value for name, value in said.items() if value != ""}
