"""Tasks that do not outlive the block that needs them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

T = TypeVar("T")


@contextlib.asynccontextmanager
async def ending(task: "asyncio.Task[T]", *others: "asyncio.Task[Any]") -> AsyncGenerator["asyncio.Task[T]", None]:
    """What still runs at the end of the block, however that ends, is cancelled and awaited."""
    try:
        yield task
    finally:
        for each in (task, *others):
            each.cancel()
        await asyncio.gather(task, *others, return_exceptions=True)
