"""A request's body on its way in: no more bytes than allowed, no longer than allowed, counted while it is read."""

import asyncio
import contextlib

from starlette.types import Message, Receive, Scope

from stages.edge.http.errors import ApiError

LINGER_BYTES = 32 * 1024 * 1024
LINGER_S = 2.0
"""What is read and thrown away of a body that is refused: closed at once, many clients never see the answer."""


class Upload:
    """`receive` of ASGI for one request. Raises `ApiError` 413 and 408."""

    def __init__(self, scope: Scope, receive: Receive, most: int, timeout_s: float) -> None:
        self._receive = receive
        self._most = most
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._read = 0
        self._whole = False
        self._announced = _content_length(scope)
        self._waits_for_100 = _expects_continue(scope)

    async def receive(self) -> Message:
        """ASGI."""
        if self._whole:
            return await self._receive()
        if self._announced > self._most:
            if not self._waits_for_100:
                await self._linger()
            raise self._too_large()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self._whole = True
            raise ApiError(408, "the body came too slowly", headers=CLOSE) from None
        if message["type"] != "http.request":
            return message
        self._whole = not message.get("more_body", False)
        self._read += len(message.get("body", b""))
        if self._read > self._most:
            await self._linger()
            raise self._too_large()
        return message

    async def _linger(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while not self._whole and self._read < self._most + LINGER_BYTES:
                    message = await self._receive()
                    self._read += len(message.get("body", b""))
                    self._whole = not message.get("more_body", False)

    def _too_large(self) -> ApiError:
        self._whole = True
        message = f"the body may have {self._most} bytes"
        return ApiError(413, message, code="too_large", headers=CLOSE)


CLOSE = {"Connection": "close"}


def _content_length(scope: Scope) -> int:
    text = _header(scope, b"content-length")
    return int(text) if text.isdigit() else 0


def _expects_continue(scope: Scope) -> bool:
    return _header(scope, b"expect").lower() == b"100-continue"


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")
