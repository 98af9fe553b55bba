"""A client that closes its connection ends what was begun for it, streamed or whole."""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Receive

from stages.edge.http.errors import ClientGone
from stages.edge.http.line import Line, line_of

T = TypeVar("T")


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client closes its connection: raises `ClientGone` then.

    Call it once the body is read, which it is where a route takes it as a parameter.
    """
    async with present(request.receive, line_of(request.scope)):
        return await work


def present(receive: Receive, line: Line | None = None) -> "_Present":
    """Cancels what is inside when the client is gone, and raises `ClientGone`. `line`: what it came over, if known."""
    return _Present(receive, line)


class _Present:
    __slots__ = ("_gone", "_line", "_receive", "_scope", "_watcher")

    def __init__(self, receive: Receive, line: Line | None) -> None:
        self._receive = receive
        self._line = line
        self._gone = False
        self._scope = asyncio.timeout(None)
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        if self._line is not None:
            self._line.when_lost(self._leave)
        else:  # ASGI says it to those who wait for it
            self._watcher = asyncio.create_task(self._watch())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._line is not None:
            self._line.when_lost(None)  # what ends from here on ends by itself
        if self._watcher is not None:
            self._watcher.cancel()
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            if self._gone:
                raise ClientGone from None
            raise

    def _leave(self) -> None:
        self._gone = True
        self._scope.reschedule(asyncio.get_running_loop().time())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()
