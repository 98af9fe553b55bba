"""One piece of work on behalf of many who wait for it: all of a batch succeed together or fail together."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Item = TypeVar("Item")


async def settle(batch: list[tuple[Item, asyncio.Future[None]]], work: Callable[[list[Item]], Awaitable[None]]) -> None:
    """Runs `work` with the items of `batch`, then resolves the future of each, or gives it what `work` raised.

    Raises nothing but `CancelledError`, which leaves the futures as they are.
    """
    failure: Exception | None = None
    try:
        await work([item for item, _ in batch])
    except Exception as error:  # noqa: BLE001 — those who wait for it get it
        failure = error
    for _, settled in batch:
        if settled.done():  # whoever waited was cancelled
            continue
        if failure is None:
            settled.set_result(None)
        else:
            settled.set_exception(failure)
