"""Waiting for what will be so in a moment."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

T = TypeVar("T")

LOOK_AGAIN_S = 0.01


async def until(look: Callable[[], T | None], within_s: float = 15.0) -> T:
    """What `look` finds, once it finds something."""

    async def look_now() -> T | None:
        return look()

    return await until_async(look_now, within_s)


async def until_async(look: Callable[[], Awaitable[T | None]], within_s: float = 15.0) -> T:
    """The same for what has to be asked for."""
    give_up_at = asyncio.get_running_loop().time() + within_s
    while True:
        found = await look()
        if found:
            return found
        if asyncio.get_running_loop().time() > give_up_at:
            pytest.fail(f"not within {within_s} s")
        await asyncio.sleep(LOOK_AGAIN_S)
