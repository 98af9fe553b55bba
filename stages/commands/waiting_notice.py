"""A line on stderr for a person who waits for the first piece of an answer, and does not know why."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from broker.chunk import Chunk
from broker.connection import BrokerError
from schemas.faults import RequestFault

PATIENCE_S = 2.0

Reason = Callable[[], Awaitable[str]]
"""Why nothing comes, "" where there is nothing to say."""


async def with_notice(chunks: AsyncGenerator[Chunk, None], reason: Reason) -> AsyncIterator[Chunk]:
    """`chunks` as they come. Where the first takes longer than 2 s, says once what `reason` finds."""
    notice = asyncio.create_task(_tell(reason))
    async with contextlib.aclosing(chunks):
        try:
            async for chunk in chunks:
                notice.cancel()
                yield chunk
        finally:
            notice.cancel()
            await asyncio.gather(notice, return_exceptions=True)


async def _tell(reason: Reason) -> None:
    await asyncio.sleep(PATIENCE_S)
    with contextlib.suppress(BrokerError, RequestFault):
        text = await reason()
        if text:
            print(f"headrace: {text}, waiting", file=sys.stderr, flush=True)
