"""The answers to several prompts at once, as they come."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

T = TypeVar("T")

BACKLOG = 64
"""Chunks that wait for a slow client; beyond that the streams wait, each with a bounded backlog of its own."""


async def merged(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """What `streams` yield, with the index of the stream. The first that raises ends all; so does leaving early."""
    queue: asyncio.Queue[tuple[int, T] | BaseException | None] = asyncio.Queue(BACKLOG)
    readers = [asyncio.create_task(_read(stream, index, queue)) for index, stream in enumerate(streams)]
    running = len(readers)
    try:
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _read(
    stream: AsyncGenerator[T, None], index: int, queue: asyncio.Queue[tuple[int, T] | BaseException | None]
) -> None:
    try:
        async with contextlib.aclosing(stream):
            async for item in stream:
                await queue.put((index, item))
    except Exception as error:  # noqa: BLE001 — raised again by whoever reads the queue
        await queue.put(error)
    else:
        await queue.put(None)
