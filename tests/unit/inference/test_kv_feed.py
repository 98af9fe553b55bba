"""What a cache holds reaches schedulers in few messages, each with its number, and whole when asked for."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncGenerator
from typing import cast

from broker.connection import Connection, Inbound, Unavailable
from schemas.codec import decode
from schemas.kv_events import KvEvents
from stages.inference.kv_blocks import KvBlocks, KvChange
from stages.inference.kv_feed import COALESCE_S, ENVELOPE, KvFeed, pack_hashes


class Broker:
    """A connection that keeps what is published."""

    def __init__(self, hashes: int = 1000) -> None:
        self.max_payload = ENVELOPE + 8 * hashes
        self.connected = True
        self.refuses = False
        self.messages: list[tuple[str, KvEvents]] = []
        self.tried = asyncio.Event()
        self.published = asyncio.Event()

    async def publish(self, subject: str, data: bytes) -> None:
        assert len(data) <= self.max_payload
        self.tried.set()
        if self.refuses:
            raise Unavailable("gone")
        await asyncio.sleep(0)
        self.messages.append((subject, decode(KvEvents, data)))
        self.published.set()

    async def until_known(self, known: set[int]) -> None:
        """Returns once the messages so far add up to these hashes."""
        async with asyncio.timeout(5):
            while self._known() != known:
                self.published.clear()
                await self.published.wait()

    def _known(self) -> set[int]:
        seen = set[int]()
        for _, stored, removed, _ in self.told:
            seen = (seen - set(removed)) | set(stored)
        return seen

    @property
    def told(self) -> list[tuple[int, list[int], list[int], bool]]:
        """Number, stored, removed, whole."""
        return [(one.number, unpacked(one.stored), unpacked(one.removed), one.whole) for _, one in self.messages]


def unpacked(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // 8}Q", data))


def feed_of(broker: Broker, blocks: KvBlocks | None) -> KvFeed:
    return KvFeed(cast("Connection", broker), "m", "w", blocks)


@contextlib.asynccontextmanager
async def running(feed: KvFeed) -> AsyncGenerator[None]:
    task = asyncio.create_task(feed.run())
    await asyncio.sleep(COALESCE_S / 5)
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_changes_of_several_steps_are_one_message() -> None:
    """The first goes at once, what follows within some milliseconds goes together, and the number is the last one's."""
    broker, blocks = Broker(), KvBlocks()
    feed = feed_of(broker, blocks)
    assert feed.number == 0
    async with running(feed):
        for number in range(5):
            blocks.apply([KvChange("stored", [number])])
            await asyncio.sleep(COALESCE_S / 10)
        blocks.apply([KvChange("removed", [0, 4])])
        await broker.until_known({1, 2, 3})
        assert len(broker.messages) <= 3
        assert [number for number, *_ in broker.told] == list(range(1, feed.number + 1))
        assert {subject for subject, _ in broker.messages} == {"hr.kv.m.w"}
        assert broker.messages[0][1].worker == "w"


async def test_a_snapshot_is_as_after_its_number() -> None:
    """What is pending is published before the answer, so that the next news follow it."""
    broker, blocks = Broker(), KvBlocks()
    feed = feed_of(broker, blocks)
    blocks.apply([KvChange("stored", [1, 2])])
    await feed.on_snapshot(Inbound("hr.kvsnapshot.w", b"", "reply"))
    assert [subject for subject, _ in broker.messages] == ["hr.kv.m.w", "reply"]
    assert broker.told == [(1, [1, 2], [], False), (1, [1, 2], [], True)]


async def test_messages_fit_the_broker() -> None:
    """News that are too large go as several; a snapshot has the newest that fit."""
    broker, blocks = Broker(hashes=3), KvBlocks()
    blocks.apply([KvChange("stored", list(range(7)))])
    await feed_of(broker, blocks).on_snapshot(Inbound("hr.kvsnapshot.w", b"", "reply"))
    news: list[tuple[int, list[int], list[int], bool]] = [
        (1, [0, 1, 2], [], False),
        (2, [3, 4, 5], [], False),
        (3, [6], [], False),
    ]
    assert broker.told == [*news, (3, [4, 5, 6], [], True)]


async def test_without_a_connection_it_waits() -> None:
    """What changes meanwhile is told in one when there is a connection again."""
    broker, blocks = Broker(), KvBlocks()
    broker.connected = False
    async with running(feed_of(broker, blocks)):
        blocks.apply([KvChange("stored", [1, 2])])
        blocks.apply([KvChange("removed", [1])])
        broker.connected = True
        await broker.until_known({2})
    assert broker.told == [(1, [2], [], False)]


async def test_a_lost_message_shows_in_the_numbers() -> None:
    """A broker that refuses does not end the feed; the number counts on."""
    broker, blocks = Broker(), KvBlocks()
    broker.refuses = True
    feed = feed_of(broker, blocks)
    async with running(feed):
        blocks.apply([KvChange("stored", [1])])
        await asyncio.wait_for(broker.tried.wait(), 5)
        broker.refuses = False
        blocks.apply([KvChange("stored", [2])])
        await broker.until_known({2})
    assert broker.told == [(2, [2], [], False)]


async def test_an_engine_that_does_not_tell() -> None:
    """Its number is -1, nothing is published, and who asks is told of no block."""
    broker = Broker()
    feed = feed_of(broker, None)
    async with running(feed):
        assert feed.number == -1
    assert not broker.messages
    await feed.on_snapshot(Inbound("hr.kvsnapshot.w", b"", "reply"))
    assert broker.told == [(0, [], [], True)]


def test_hashes_are_little_endian() -> None:
    """As `schemas.kv_events` says."""
    assert pack_hashes([1, 2**64 - 1]) == b"\x01" + b"\0" * 7 + b"\xff" * 8
