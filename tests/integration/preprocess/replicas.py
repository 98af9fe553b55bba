"""Replicas of the preprocess stage in this process, what is sent to them, and what they made of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from broker import subjects
from broker.connection import BrokerOptions, Connection
from broker.jetstream_api import call
from broker.journal import JournalReader
from broker.publisher import Publisher
from broker.topology import Topology, ensure_schedule_consumer
from broker.work_queue import WorkQueue
from schemas.codec import decode, encode
from schemas.journal import End
from schemas.request import ChatMessage, Request
from schemas.ticket import Ticket
from stages.lifecycle import StageContext
from stages.preprocess.settings import PreprocessSettings
from stages.preprocess.stage import run
from stages.telemetry import Telemetry


@dataclass
class Replica:
    """One running replica of the stage, with a connection of its own."""

    context: StageContext
    task: "asyncio.Task[None]"
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    async def start(cls, url: str, topology: Topology, name: str, settings: PreprocessSettings) -> "Replica":
        connection = await Connection.open(BrokerOptions(url=url, name=name), patience_s=10)
        context = StageContext(
            connection=connection,
            topology=topology,
            stage="preprocess",
            instance=name,
            telemetry=Telemetry("preprocess", name, environ={}),
            stopping=asyncio.Event(),
            grace_s=5.0,
        )
        replica = cls(context, asyncio.create_task(run(context, settings)))
        context.on_ready = lambda ready: replica.ready.set() if ready else replica.ready.clear()
        async with asyncio.timeout(10):
            await replica.ready.wait()
        return replica

    async def stop(self) -> None:
        self.context.stopping.set()
        await asyncio.wait_for(self.task, 10)
        await self.close()

    async def kill(self) -> None:
        """As SIGKILL does: its connection is gone, nothing is said."""
        await self.context.connection.client.close()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.context.telemetry.close()

    async def close(self) -> None:
        await self.context.connection.close()
        self.context.telemetry.close()


Start = Callable[..., Awaitable[Replica]]


def request(name: str, text: str = "hi", **changes: Any) -> Request:
    return Request(id=name, session="s", messages=[ChatMessage("user", text)], **changes)


async def submit(
    connection: Connection, asked: Request | bytes, *, tenant: str = "t", model: str = "tiny", json_: bool = False
) -> None:
    """Waits where the tenant's queue is full for a moment: these are short, and the machine may be busy."""
    data = asked if isinstance(asked, bytes) else encode(asked)
    content_type = "application/json" if json_ else "application/msgpack"
    subject = subjects.request(tenant, model)
    await Publisher(connection).publish_patiently(subject, data, message_id="", content_type=content_type, patience_s=5)


async def stored(connection: Connection, stream: str) -> int:
    return int((await call(connection, f"STREAM.INFO.{stream}"))["state"]["messages"])


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 — it is asked of the broker
            await asyncio.sleep(0.02)


async def settled(connection: Connection) -> None:
    """Every request has left the queue."""

    async def empty() -> bool:
        return await stored(connection, subjects.REQUESTS) == 0

    await until(empty)


async def tickets(connection: Connection, count: int, model: str = "tiny") -> list[Ticket]:
    """Takes so many tickets out of TICKETS."""
    await ensure_schedule_consumer(connection, model)
    queue = WorkQueue(connection, subjects.TICKETS, subjects.schedule_consumer(model), slots=64, ack_wait_s=15)
    await queue.start()
    found: list[Ticket] = []
    async with asyncio.timeout(10):
        async for batch in queue.batches():
            for delivery in batch:
                found.append(decode(Ticket, delivery.data))
                await queue.ack(delivery)
            if len(found) >= count:
                await queue.stop()
    return found


async def ends(connection: Connection, topology: Topology, count: int) -> list[End]:
    """So many ends from the journals."""
    found: list[End] = []

    async def read(partition: int) -> None:
        reader = JournalReader(connection, partition)
        await reader.start()
        try:
            async for records in reader.rounds():
                for record in records:
                    found.extend(record.message.ends if record.message else [])
        finally:
            await reader.stop()

    readers = [asyncio.create_task(read(partition)) for partition in range(topology.partitions)]

    async def enough() -> bool:
        return len(found) >= count

    await until(enough)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return found
