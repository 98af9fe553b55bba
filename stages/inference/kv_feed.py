"""Tells schedulers what this worker's KV cache holds: what changed, a few milliseconds late, and all of it on request.

A message that got lost is not sent again: readers see by the numbers that one is missing, and ask for all of it.
"""

import asyncio
import contextlib
import struct
from collections.abc import Sequence

from broker import subjects
from broker.connection import Connection, Inbound, Unavailable
from schemas.codec import encode
from schemas.kv_events import HASH_BYTES, KvEvents
from stages.inference.kv_blocks import KvBlocks, KvNews

COALESCE_S = 0.005
"""Messages keep this distance: what several steps change goes as one."""

AGAIN_S = 0.1
"""Between two looks for a connection that was lost."""

ENVELOPE = 512
"""Bytes of a message that are no hashes, at most."""


class KvFeed:
    """What `blocks` says goes to `hr.kv.<model>.<worker>`; `blocks` None: nothing, as if a cache were empty."""

    def __init__(self, connection: Connection, model: str, worker: str, blocks: KvBlocks | None) -> None:
        self._connection = connection
        self._subject = subjects.kv(model, worker)
        self._worker = worker
        self._tells = blocks is not None
        self._blocks = blocks if blocks is not None else KvBlocks()
        self._changed = asyncio.Event()
        self._changed.set()  # there may be news from before
        self._blocks.on_change = self._changed.set
        self._publishing = asyncio.Lock()

    @property
    def number(self) -> int:
        """That of the last message that was published, 0 before the first; -1 where there never is one."""
        return self._blocks.number if self._tells else -1

    async def run(self) -> None:
        """Publishes what changes until it is cancelled. Without a connection it waits, and tells the sum later."""
        while True:
            await self._changed.wait()
            if not self._connection.connected:
                await asyncio.sleep(AGAIN_S)
                continue
            self._changed.clear()
            async with self._publishing:
                await self._publish_news()
            await asyncio.sleep(COALESCE_S)

    async def on_snapshot(self, message: Inbound) -> None:
        """Answers with all that the cache holds. What changed up to now is published before."""
        async with self._publishing:
            await self._publish_news()
            snapshot = self._blocks.snapshot(self._most)  # nothing can come between: it is as after that number
        await self._publish(message.reply, snapshot)

    @property
    def _most(self) -> int:
        """How many hashes fit into one message."""
        return max((self._connection.max_payload - ENVELOPE) // HASH_BYTES, 1)

    async def _publish_news(self) -> None:
        while news := self._blocks.take_news(self._most):
            await self._publish(self._subject, news)

    async def _publish(self, subject: str, news: KvNews) -> None:
        events = KvEvents(
            worker=self._worker,
            number=news.number,
            stored=pack_hashes(news.stored),
            removed=pack_hashes(news.removed),
            whole=news.whole,
        )
        with contextlib.suppress(Unavailable):
            await self._connection.publish(subject, encode(events))


def pack_hashes(hashes: Sequence[int]) -> bytes:
    """Hashes as they are in messages: u64, little-endian."""
    return struct.pack(f"<{len(hashes)}Q", *hashes)
