"""What ASGI does not say of a client's connection: whether it takes a piece of a body at once, and that it is lost."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl

EXTENSION = "headrace.line"


class Line:
    """The connection that one request came over."""

    __slots__ = ("_flow", "_leave", "_lost", "_transport")

    def __init__(self, transport: asyncio.Transport, flow: FlowControl) -> None:
        self._transport = transport
        self._flow = flow
        self._lost = False
        self._leave: Callable[[], None] | None = None

    def put_in(self, scope: Any) -> None:
        """For `line_of`, in what answers the request."""
        scope["extensions"] = {EXTENSION: self}

    def write(self, data: bytes) -> bool:
        """Sends a piece of a body that goes out in chunks (RFC 9112, 7.1); false where that would have to wait.

        `data` may not be empty: that would end the body.
        """
        if self._flow.write_paused or self._transport.is_closing():
            return False
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def when_lost(self, leave: Callable[[], None] | None) -> None:
        """Has `leave` called once the connection is lost, at once if it is; None: nobody wants to know any more."""
        self._leave = leave
        if self._lost:
            self.lose()

    def lose(self) -> None:
        """It is lost."""
        self._lost = True
        if self._leave is not None:
            self._leave()


def line_of(scope: Scope) -> Line | None:
    """None where another server than the edge's own has read the request."""
    return scope.get("extensions", {}).get(EXTENSION)
