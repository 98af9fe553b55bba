"""A model, its streams, and as many schedulers, workers and owners as a test asks for."""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator

import pytest_asyncio

from broker import subjects
from broker.connection import BrokerOptions, Connection
from broker.jetstream_api import call, list_all
from broker.publisher import Publisher
from broker.registry import Registry
from broker.server import EmbeddedServer
from broker.topology import Topology, TopologySettings, initialise
from schemas.codec import encode
from schemas.model import ModelCard
from schemas.ticket import EngineSampling, Ticket
from stages.lifecycle import StageContext
from stages.schedule.settings import ScheduleSettings
from stages.schedule.stage import run
from stages.telemetry import Telemetry
from tests.integration.schedule.peers import MODEL, FakeOwner, FakeWorker

STREAMS = TopologySettings(partitions=3)

CARD = ModelCard(
    slug=MODEL,
    name=MODEL,
    engine="simulated",
    context_length=4096,
    vocab_size=256,
    eos_ids=[0],
    defaults=EngineSampling(max_tokens=0),
)


class RunningScheduler:
    """The stage in this process, on a connection of its own."""

    def __init__(self, connection: Connection, topology: Topology, name: str, settings: ScheduleSettings) -> None:
        self.ready = asyncio.Event()
        self.context = StageContext(
            connection=connection,
            topology=topology,
            stage="schedule",
            instance=name,
            telemetry=Telemetry("schedule", name, environ={}),
            stopping=asyncio.Event(),
            grace_s=4.0,
            on_ready=lambda ready: self.ready.set() if ready else self.ready.clear(),
        )
        self.task = asyncio.create_task(run(self.context, settings))

    async def stop(self) -> None:
        """Soft, as by SIGTERM."""
        self.context.stopping.set()
        await self.task
        await self.context.connection.close()

    async def die(self) -> None:
        """As by SIGKILL: the connection is gone first, so nothing is said on the way out."""
        await self.context.connection.client.close()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class World:
    """Starts what a test needs and ends all of it."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.connection = connection
        self.topology: Topology
        self.workers: list[FakeWorker] = []
        self._url = url
        self._schedulers: list[RunningScheduler] = []
        self._owners: list[FakeOwner] = []
        self._numbers = itertools.count(1)

    async def make_streams(self, settings: TopologySettings) -> None:
        for stream in await list_all(self.connection, "STREAM.LIST", "streams"):
            await call(self.connection, f"STREAM.DELETE.{stream['config']['name']}")
        self.topology = await initialise(self.connection, settings)
        await Registry(self.connection).publish_model(CARD, {})

    async def scheduler(self, **changes: float) -> RunningScheduler:
        settings = dataclasses.replace(ScheduleSettings(), **changes)
        name = f"schedule-{next(self._numbers)}"
        connection = await Connection.open(BrokerOptions(url=self._url, name=name), patience_s=10)
        scheduler = RunningScheduler(connection, self.topology, name, settings)
        self._schedulers.append(scheduler)
        ready = asyncio.create_task(scheduler.ready.wait())
        await asyncio.wait({ready, scheduler.task}, return_when=asyncio.FIRST_COMPLETED)
        if scheduler.task.done():
            scheduler.task.result()
        return scheduler

    async def worker(self, name: str, *, slots: int, work_s: float = 0.0, model: str = MODEL) -> FakeWorker:
        worker = FakeWorker(self.connection, name, slots=slots, work_s=work_s, model=model)
        self.workers.append(worker)
        await worker.start()
        return worker

    async def owner(self) -> FakeOwner:
        owner = FakeOwner(self.connection, self.topology.partitions)
        self._owners.append(owner)
        await owner.start()
        return owner

    async def submit(self, request: str, *, deadline_ms: int = 60_000, tenant: str = "t", model: str = MODEL) -> int:
        """Publishes one ticket; its sequence in TICKETS."""
        key = f"{tenant}.{request}"
        ticket = Ticket(
            tenant=tenant,
            request=request,
            choice=0,
            session="s",
            model=model,
            prompt=bytes(32),
            sampling=EngineSampling(max_tokens=8),
            deadline_ms=deadline_ms,
            partition=subjects.partition_of(key, self.topology.partitions),
        )
        return await Publisher(self.connection).publish(
            subjects.ticket(model, tenant), encode(ticket), message_id=f"{key}.0"
        )

    async def tickets_left(self) -> int:
        return (await call(self.connection, f"STREAM.INFO.{subjects.TICKETS}"))["state"]["messages"]

    async def end(self) -> None:
        for scheduler in self._schedulers:
            if not scheduler.task.done():
                await scheduler.stop()
        for worker in self.workers:
            await worker.die()
        for owner in self._owners:
            await owner.stop()


@pytest_asyncio.fixture
async def world(server: EmbeddedServer, connection: Connection) -> AsyncIterator[World]:
    """Empty streams of three partitions and one model."""
    world = World(server.url, connection)
    await world.make_streams(STREAMS)
    yield world
    await world.end()
