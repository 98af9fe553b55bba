"""How long an answer is waited for, by a clock that does not count against others what was our own standstill."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

STOOD_STILL_S = 0.1
"""A timer that fires so much later than it was due: this process was stopped, or had no CPU."""

CATCH_UP_S = 0.25
"""Time to read what arrived meanwhile."""


@contextlib.asynccontextmanager
async def awaiting(timeout_s: float | None) -> AsyncGenerator[asyncio.Timeout, None]:
    """`asyncio.timeout`, but what came in while this process stood still is read before anything counts as late.

    After a SIGCONT an event loop runs its timers before it reads its sockets.
    """
    loop = asyncio.get_running_loop()
    scope = asyncio.timeout(None)
    due = loop.time() + (timeout_s or 0.0)
    timer = None if timeout_s is None else loop.call_at(due, _expire, loop, scope, due)
    try:
        async with scope:
            yield scope
    finally:
        if timer is not None:
            timer.cancel()


def _expire(loop: asyncio.AbstractEventLoop, scope: asyncio.Timeout, due: float) -> None:
    if not scope.expired():
        now = loop.time()
        scope.reschedule(now + CATCH_UP_S if now - due > STOOD_STILL_S else now)
