"""At a real broker: what a worker's cache holds reaches who follows it, and heartbeats say up to which message."""

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from broker import subjects
from broker.connection import Connection, Inbound
from broker.topology import Topology
from schemas.codec import decode, encode
from schemas.kv_events import KvEvents, KvSnapshot
from stages.inference import stage
from stages.inference.engine import StepOutput
from stages.inference.kv_blocks import KvBlocks, KvChange
from stages.inference.simulated import SimulatedEngine
from tests.integration.inference.serving import MODEL, Pipeline, serving, simulated


class Telling(SimulatedEngine):
    """Each step stores one block, and every third removes one."""

    kv_blocks = KvBlocks()
    steps = 0

    async def next_step(self) -> StepOutput:
        step = await super().next_step()
        self.steps += 1
        changes = [KvChange("stored", [self.steps])]
        if self.steps % 3 == 0:
            changes.append(KvChange("removed", [self.steps // 3]))
        self.kv_blocks.apply(changes)
        return step


class Follower:
    """What somebody knows who heard all messages."""

    def __init__(self) -> None:
        self.known: set[int] = set()
        self.number = 0

    async def hear(self, message: Inbound) -> None:
        events = decode(KvEvents, message.data)
        assert (events.worker, events.number) == ("w1", self.number + 1)
        self.number = events.number
        self.known = (self.known - unpacked(events.removed)) | unpacked(events.stored)


def unpacked(data: bytes) -> set[int]:
    return set(struct.unpack(f"<{len(data) // 8}Q", data))


@pytest_asyncio.fixture
async def pipeline(connection: Connection, topology: Topology) -> AsyncIterator[Pipeline]:
    running = Pipeline(connection, topology)
    await running.start()
    yield running
    await running.stop()


async def snapshot_of(connection: Connection) -> KvEvents:
    answer = await connection.request(subjects.kv_snapshot("w1"), encode(KvSnapshot("s1")), 2)
    return decode(KvEvents, answer.data)


async def test_events_snapshot_and_heartbeat(
    broker_url: str, topology: Topology, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages add up to what the snapshot says, at the same number, which heartbeats have too."""
    monkeypatch.setattr("stages.inference.simulated.SimulatedEngine", Telling)
    monkeypatch.setattr(Telling, "kv_blocks", KvBlocks())
    follower = Follower()
    subscription = await pipeline.connection.subscribe(subjects.kv(MODEL, "w1"), follower.hear)
    settings = simulated(simulated_step_ms=2, heartbeat_s=0.1)
    async with serving(broker_url, topology, lambda context: stage.run(context, settings)):
        await pipeline.until(lambda: bool(pipeline.heartbeats))
        assert pipeline.heartbeats[0].kv_number == 0
        await pipeline.grant(pipeline.item("r", max_tokens=60))
        await pipeline.until(lambda: "t.r" in pipeline.finishes)
        snapshot = await snapshot_of(pipeline.connection)
        await pipeline.connection.prove_subscriptions()
        await asyncio.sleep(0)
        assert snapshot.whole
        assert unpacked(snapshot.stored) == set(range(21, 61)) == follower.known
        assert snapshot.number == follower.number <= 60
        await pipeline.until(lambda: pipeline.heartbeats[-1].kv_number == snapshot.number)
    await subscription.close()


async def test_an_engine_that_does_not_tell(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """Heartbeats say so, and who asks is answered that nothing is known."""
    settings = simulated()
    async with serving(broker_url, topology, lambda context: stage.run(context, settings)):
        await pipeline.until(lambda: bool(pipeline.heartbeats))
        assert pipeline.heartbeats[-1].kv_number == -1
        assert await snapshot_of(pipeline.connection) == KvEvents(worker="w1", number=0, whole=True)
