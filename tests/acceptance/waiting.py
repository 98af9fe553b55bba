"""Waiting for what has to come, with an end."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

LOOK_S = 0.1


def eventually(true: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits until `true()`; fails with `what` where that takes longer."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(LOOK_S)


async def until(
    true: Callable[[], bool | Awaitable[bool]], what: str, *, seconds: float = 30, every_s: float = LOOK_S
) -> float:
    """As `eventually`, without holding the event loop up; the seconds that it took."""
    begin = time.monotonic()
    while True:
        answer = true()
        if await answer if inspect.isawaitable(answer) else answer:
            return time.monotonic() - begin
        assert time.monotonic() - begin < seconds, f"not within {seconds} s: {what}"
        await asyncio.sleep(every_s)
