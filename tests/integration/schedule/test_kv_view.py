"""What workers say of their KV caches reaches the scheduler, over a network that loses some of it."""

import asyncio

import msgspec

from broker import subjects
from broker.connection import Connection, Inbound
from broker.registry import Registry
from schemas.codec import decode, encode
from schemas.control import WorkerStatus
from schemas.grant import Credits
from schemas.kv_events import KvEvents, KvSnapshot
from stages.schedule.cached_blocks import CachedBlocks
from stages.schedule.kv_view import KvView
from stages.schedule.prefixes import packed
from tests.integration.schedule.conftest import CARD, World
from tests.integration.schedule.peers import MODEL, until


class KvWorker:
    """Publishes heartbeats and events, and answers for a snapshot with `blocks`, then at once with the next events."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.blocks: list[int] = []
        self.number = 0
        self.asked_by: list[str] = []

    async def start(self) -> None:
        await self.connection.subscribe(subjects.kv_snapshot("w1"), self._on_question)
        await self.connection.prove_subscriptions()

    async def store(self, *blocks: int, lost: bool = False) -> None:
        self.blocks += blocks
        self.number += 1
        if not lost:
            await self._publish(KvEvents(worker="w1", number=self.number, stored=packed(blocks)))

    async def beat(self) -> None:
        credit = Credits(1, 1000)
        status = WorkerStatus(
            worker="w1", model=MODEL, state="ready", credits=credit, sent=1, kv_capacity=1000, kv_number=self.number
        )
        await self.connection.publish(subjects.worker(MODEL, "w1"), encode(status))

    async def _publish(self, events: KvEvents) -> None:
        await self.connection.publish(subjects.kv(MODEL, "w1"), encode(events))

    async def _on_question(self, message: Inbound) -> None:
        self.asked_by.append(decode(KvSnapshot, message.data).scheduler)
        whole = KvEvents(worker="w1", number=self.number, stored=packed(self.blocks), whole=True)
        await self.connection.publish(message.reply, encode(whole))
        for block in range(900, 950):
            await self.store(block)


async def test_after_a_gap_the_snapshot_is_asked_for_and_applied(world: World, connection: Connection) -> None:
    """Events that follow right behind it are not lost, and nothing is asked twice."""
    cached = CachedBlocks(16)
    spawned: list[asyncio.Task[None]] = []
    view = KvView(
        connection,
        "s1",
        lambda model: cached if model == MODEL else None,
        lambda work: spawned.append(asyncio.create_task(work)),
    )
    await view.start()
    worker = KvWorker(world.connection)
    await worker.start()
    view.beat(WorkerStatus(worker="w1", model=MODEL, state="ready", credits=Credits(1, 1), sent=1, kv_number=0))

    await worker.store(11, 12)
    await until(lambda: cached.match(packed([11, 12]), 0.0) == {"w1": 2})
    await connection.publish(subjects.kv(MODEL, "w1"), b"nonsense")
    await worker.store(13, lost=True)
    await worker.store(14)
    await until(lambda: cached.match(packed([11, 12, 13, 14, *range(900, 950)]), 0.0) == {"w1": 54})
    assert worker.asked_by == ["s1"]
    await view.close()


async def test_a_question_that_nobody_hears_is_no_answer(connection: Connection, world: World) -> None:
    """The server's own word for that is not taken for a snapshot; a later heartbeat asks again."""
    cached = CachedBlocks(16)
    view = KvView(connection, "s1", lambda _: cached, asyncio.ensure_future)
    await view.start()
    status = WorkerStatus(worker="w1", model=MODEL, state="ready", credits=Credits(1, 1), sent=1, kv_number=3)
    view.beat(status)
    await asyncio.sleep(1.05)
    assert not cached.known("w1")

    worker = KvWorker(world.connection)
    worker.number, worker.blocks = 3, [11]
    await worker.start()
    view.beat(status)
    await until(lambda: cached.match(packed([11]), 0.0) == {"w1": 1})
    await view.close()


async def test_a_scheduler_that_comes_later_asks_at_the_first_heartbeat(world: World) -> None:
    """Nothing unreadable ends it, and a model without blocks has nothing to ask for until its card names their size."""
    worker = KvWorker(world.connection)
    await worker.start()
    await worker.store(11)
    scheduler = await world.scheduler()
    await world.connection.publish(subjects.kv(MODEL, "w1"), b"nonsense")
    await worker.beat()
    await asyncio.sleep(0.2)
    assert worker.asked_by == []

    await Registry(world.connection).publish_model(msgspec.structs.replace(CARD, block_size=16), {})
    async with asyncio.timeout(5):
        while not worker.asked_by:
            await worker.beat()
            await asyncio.sleep(0.05)
    assert worker.asked_by == [scheduler.context.instance]
    assert not scheduler.task.done()
