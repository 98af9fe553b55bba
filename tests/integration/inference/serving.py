"""The inference stage in this process at a real broker, and the scheduler's and the owner's side of it."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from broker import subjects
from broker.connection import BrokerOptions, Connection, Inbound
from broker.journal import JournalReader
from broker.topology import Topology
from schemas.codec import decode, encode, pack_ids
from schemas.control import Drop, DropItem, WorkerStatus
from schemas.grant import Grant, GrantItem, GrantReply
from schemas.journal import End, JournalMessage, Released
from schemas.ticket import EngineSampling, Ticket
from stages.inference.settings import InferenceSettings
from stages.lifecycle import StageContext
from stages.telemetry import Telemetry

MODEL = "simulated"
Run = Callable[[StageContext], Awaitable[None]]


class Pipeline:
    """What stands around a worker: heartbeats that were heard, all entries of all journals, grants."""

    def __init__(self, connection: Connection, topology: Topology, model: str = MODEL) -> None:
        self.connection = connection
        self.topology = topology
        self.model = model
        self.heartbeats: list[WorkerStatus] = []
        self.heard_at: list[float] = []
        self.ids: dict[str, list[int]] = {}
        self._first: dict[str, int] = {}
        self.finishes: dict[str, str] = {}
        self.ends: list[End] = []
        self.released: list[Released] = []
        self.messages = 0
        self._changed = asyncio.Event()
        self._sequences = itertools.count(1)

    async def start(self) -> None:
        await self.connection.subscribe(subjects.worker(self.model, "*"), self._on_heartbeat)
        await self.connection.prove_subscriptions()
        self._readers = [JournalReader(self.connection, number) for number in range(self.topology.partitions)]
        self._tasks = [asyncio.create_task(self._read(reader)) for reader in self._readers]

    async def stop(self) -> None:
        for reader in self._readers:
            await reader.stop()
        await asyncio.gather(*self._tasks)

    async def until(self, true: Callable[[], bool], seconds: float = 10.0) -> None:
        """Waits for something that heartbeats and journals make true."""
        async with asyncio.timeout(seconds):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    def item(self, request: str, *, attempt: int = 1, ids: list[int] | None = None, **more: object) -> GrantItem:
        """A ticket's grant, with an ack subject of its own."""
        tokens, prompt = int(str(more.pop("max_tokens", 8))), more.pop("prompt", [5, 6, 7])
        deadline_ms = int(str(more.pop("deadline_ms", 60_000)))
        deaths = int(str(more.pop("deaths", 0)))
        key = f"t.{request}"
        ticket = Ticket(
            tenant="t",
            request=request,
            choice=0,
            session="s",
            model=self.model,
            prompt=pack_ids(prompt),  # pyright: ignore[reportArgumentType]
            sampling=EngineSampling(max_tokens=tokens, temperature=0.0, ignore_eos=True),
            partition=subjects.partition_of(key, self.topology.partitions),
            deadline_ms=deadline_ms,
        )
        ack = self.connection.new_inbox()
        sequence = next(self._sequences)
        return GrantItem(
            ticket=ticket,
            attempt=attempt,
            ack=ack,
            sequence=sequence,
            stored_at=time.time(),
            ids=pack_ids(ids or []),
            deaths=deaths,
        )

    async def grant(self, *items: GrantItem, worker: str = "w1") -> GrantReply:
        answer = await self.connection.request(subjects.grant(worker), encode(Grant("test", list(items))), 2)
        return decode(GrantReply, answer.data)

    async def drop(self, request: str, attempt: int, worker: str = "w1") -> None:
        message = Drop([DropItem(f"t.{request}", 0, attempt)])
        await self.connection.publish(subjects.drop(worker), encode(message))

    async def _on_heartbeat(self, message: Inbound) -> None:
        self.heartbeats.append(decode(WorkerStatus, message.data))
        self.heard_at.append(time.monotonic())
        self._changed.set()

    async def _read(self, reader: JournalReader) -> None:
        await reader.start()
        async for records in reader.rounds():
            for record in records:
                assert record.message is not None
                self._note(record.message)
            self._changed.set()

    def _note(self, message: JournalMessage) -> None:
        """The owner's rule: ids from its own offset on."""
        self.messages += 1
        for tokens in message.tokens:
            ids = self.ids.setdefault(tokens.key, [])
            known = self._first.setdefault(tokens.key, tokens.offset) + len(ids)
            assert tokens.offset <= known, "a gap"
            ids += tokens.ids[known - tokens.offset :]
            if tokens.finish:
                self.finishes[tokens.key] = tokens.finish
        self.released += message.released
        self.ends += message.ends


class Serving:
    """A running worker. `stop()` is the soft stop; it returns what the stage raised, if anything."""

    def __init__(self, context: StageContext, task: "asyncio.Task[None]") -> None:
        self.context = context
        self.task = task

    async def stop(self, seconds: float = 15.0) -> BaseException | None:
        self.context.stopping.set()
        await asyncio.wait({self.task}, timeout=seconds)
        assert self.task.done(), "the stage did not stop"
        return self.task.exception()


@contextlib.asynccontextmanager
async def serving(
    url: str, topology: Topology, run: Run, instance: str = "w1", grace_s: float = 10.0
) -> AsyncGenerator[Serving]:
    """A worker with a connection of its own, cancelled at the end if it still runs."""
    connection = await Connection.open(BrokerOptions(url=url, name=instance), patience_s=10)
    ready = asyncio.Event()
    context = StageContext(
        connection=connection,
        topology=topology,
        stage="inference",
        instance=instance,
        telemetry=Telemetry("inference", instance, environ={}),
        stopping=asyncio.Event(),
        grace_s=grace_s,
        on_ready=lambda is_ready: ready.set() if is_ready else None,
    )
    task = asyncio.ensure_future(run(context))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        yield Serving(context, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        context.telemetry.close()
        await connection.close()


def simulated(**settings: object) -> InferenceSettings:
    """Settings of a worker with the simulated engine."""
    return InferenceSettings(engine="simulated", **settings)  # pyright: ignore[reportArgumentType]
