"""A client that closes its connection ends what was begun for it, streamed or whole."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Receive

from stages.edge.http.errors import ClientGone

T = TypeVar("T")


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client closes its connection: raises `ClientGone` then.

    Call it once the body is read, which it is where a route takes it as a parameter.
    """
    async with present(request.receive):
        return await work


@contextlib.asynccontextmanager
async def present(receive: Receive) -> AsyncGenerator[None, None]:
    """Cancels what is inside when the client is gone, and raises `ClientGone`."""
    loop = asyncio.get_running_loop()
    gone = False
    scope = asyncio.timeout(None)

    def leave() -> None:
        nonlocal gone
        gone = True
        scope.reschedule(loop.time())

    watcher = asyncio.create_task(_watch(receive, leave))
    try:
        async with scope:
            try:
                yield
            finally:
                watcher.cancel()  # what ends from here on ends by itself
    except TimeoutError:
        if gone:
            raise ClientGone from None
        raise


async def _watch(receive: Receive, leave: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()
