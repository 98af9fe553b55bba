"""The preprocess stage on a real broker: each request ends as tickets, an end or a dead letter, and leaves REQUESTS."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from broker import subjects
from broker.cancels import put_cancel
from broker.connection import BrokerOptions, Connection
from broker.jetstream_api import call
from broker.journal import JournalReader
from broker.publisher import Publisher
from broker.registry import Registry
from broker.server import EmbeddedServer
from broker.topology import Topology, ensure_schedule_consumer
from broker.work_queue import WorkQueue
from schemas.codec import decode, encode, unpack_ids
from schemas.control import Cancel, DeadLetter
from schemas.journal import End
from schemas.request import ChatMessage, Request, Sampling
from schemas.ticket import Ticket
from stages.lifecycle import StageContext
from stages.preprocess import stage as stage_module
from stages.preprocess.preparation import Preparation
from stages.preprocess.settings import PreprocessSettings
from stages.preprocess.stage import StuckError, run
from stages.telemetry import Telemetry
from tests.unit.preprocess.vocabularies import card, files, t256


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


@pytest_asyncio.fixture
async def start(broker_url: str, connection: Connection, topology: Topology) -> AsyncIterator[Start]:
    """Starts replicas, each by its name; `tiny` is served."""
    await Registry(connection).publish_model(card(), files(t256()))
    running: list[Replica] = []

    async def starting(name: str = "preprocess-1", **settings: Any) -> Replica:
        running.append(await Replica.start(broker_url, topology, name, PreprocessSettings(**settings)))
        return running[-1]

    yield starting
    for replica in running:
        if not replica.task.done():
            await replica.stop()


def request(name: str, text: str = "hi", **changes: Any) -> Request:
    return Request(id=name, session="s", messages=[ChatMessage("user", text)], **changes)


async def submit(
    connection: Connection, asked: Request | bytes, *, tenant: str = "t", model: str = "tiny", json_: bool = False
) -> None:
    data = asked if isinstance(asked, bytes) else encode(asked)
    content_type = "application/json" if json_ else "application/msgpack"
    await Publisher(connection).publish(subjects.request(tenant, model), data, content_type=content_type)


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


async def test_requests_become_tickets(connection: Connection, start: Start) -> None:
    """msgpack and JSON, chat and prompt, several choices: each choice one ticket, each request acknowledged."""
    await start()
    await submit(connection, request("a", n=2, sampling=Sampling(seed=1)))
    by_hand = {"id": "b", "session": "s", "prompt": "Hi", "sampling": {"max_tokens": 5}, "stop": "\n"}
    await submit(connection, json.dumps(by_hand).encode(), json_=True)
    await submit(connection, Request(id="c", session="s", prompt=[5, 6]), tenant="other")
    await settled(connection)
    found = {(ticket.key, ticket.choice): ticket for ticket in await tickets(connection, 4)}
    assert sorted(found) == [("other.c", 0), ("t.a", 0), ("t.a", 1), ("t.b", 0)]
    assert found["t.a", 1].sampling.seed == 2
    typed = found["t.b", 0]
    assert bytes(unpack_ids(typed.prompt)) == b"Hi"
    assert (typed.answer.encoding, typed.answer.stop, typed.sampling.max_tokens) == ("json", ["\n"], 5)


async def test_refusals_are_told_through_the_journal(connection: Connection, topology: Topology, start: Start) -> None:
    """Good neighbours are not touched; nothing stays in REQUESTS."""
    await start()
    await submit(connection, request("temperature", sampling=Sampling(temperature=9.0)))
    await submit(connection, request("long", "x" * 5000))
    await submit(connection, b'{"id": "types", "session": "s", "messages": [{"role": 3}]}', json_=True)
    await submit(connection, request("model"), model="nope")
    await submit(connection, b'{"id": "surrogate", "session": "s", "prompt": "\\ud83d"}', json_=True)
    await submit(connection, request("good"))
    await settled(connection)
    found = {end.key: end for end in await ends(connection, topology, 5)}
    assert {key: (end.fault.code, end.fault.param) for key, end in found.items()} == {
        "t.temperature": ("invalid_request", "sampling.temperature"),
        "t.long": ("context_length_exceeded", "messages"),
        "t.types": ("invalid_request", "messages[0].role"),
        "t.model": ("model_not_found", "model"),
        "t.surrogate": ("invalid_request", "prompt"),
    }
    assert found["t.types"].encoding == "json"
    assert [ticket.request for ticket in await tickets(connection, 1)] == ["good"]


async def test_what_nobody_can_answer_lies_in_dead(connection: Connection, start: Start) -> None:
    """With the message as it came."""
    await start()
    await submit(connection, b"\xff\xff")
    await settled(connection)
    info = await call(connection, f"STREAM.MSG.GET.{subjects.DEAD}", {"last_by_subj": "hr.dead.tiny"})
    letter = decode(DeadLetter, base64.b64decode(info["message"]["data"]))
    assert (letter.subject, letter.payload) == ("hr.request.t.tiny", b"\xff\xff")


async def test_a_cancelled_request_is_told_so(connection: Connection, topology: Topology, start: Start) -> None:
    """E9: cancelled before preprocess saw it."""
    await put_cancel(connection, "t.a", Cancel("s"))
    await start()
    await submit(connection, request("a", n=2))
    await settled(connection)
    assert [(end.key, end.fault.code) for end in await ends(connection, topology, 2)] == [("t.a", "cancelled")] * 2


async def test_a_full_queue_holds_up_one_tenant_alone(connection: Connection, topology: Topology, start: Start) -> None:
    """Its requests are parked, kept alive beyond the ack wait, and go on when there is room: none lost, none twice."""
    await start(parked_requests=3)
    limit = topology.tickets_per_subject
    for number in range(limit + 6):
        await submit(connection, request(f"r{number}"))

    async def jammed() -> bool:
        return await stored(connection, subjects.REQUESTS) == 6

    await until(jammed)
    await submit(connection, request("free"), tenant="other")

    async def passed() -> bool:
        return await stored(connection, subjects.TICKETS) == limit + 1

    await until(passed)
    await asyncio.sleep(topology.request_ack_wait_s * 1.5)
    assert await stored(connection, subjects.REQUESTS) == 6
    found = await tickets(connection, limit + 7)
    assert sorted(ticket.key for ticket in found) == sorted([f"t.r{n}" for n in range(limit + 6)] + ["other.free"])
    await settled(connection)


async def test_replicas_share_the_work(connection: Connection, start: Start) -> None:
    """Two of them, one stopped and one killed in a burst, a third comes: every request becomes one ticket."""
    first, second = await start("preprocess-1"), await start("preprocess-2", batch_requests=1)
    asked = [request(f"r{number}", "x" * 1500) for number in range(60)]
    burst = asyncio.gather(*(submit(connection, each, tenant=f"t{n % 6}") for n, each in enumerate(asked)))
    await asyncio.sleep(0.01)
    await second.kill()
    await asyncio.gather(burst, first.stop(), start("preprocess-3"))
    await settled(connection)
    found = await tickets(connection, 60)
    assert len({ticket.key for ticket in found}) == len(found) == 60


async def test_a_broker_that_restarts(server: EmbeddedServer, connection: Connection, start: Start) -> None:
    """Killed and started again on the same store: the stage goes on by itself."""
    replica = await start()
    await submit(connection, request("before"))
    await settled(connection)
    await server.kill()
    await server.restart()
    async with asyncio.timeout(10):
        await connection.wait_connected()
        await replica.ready.wait()
    await submit(connection, request("after"))
    await settled(connection)
    assert sorted(ticket.request for ticket in await tickets(connection, 2)) == ["after", "before"]


async def test_a_stuck_thread_ends_the_process(
    connection: Connection, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds is let go after a bounded time, and another replica answers it."""
    stuck = await start()
    monkeypatch.setattr(stage_module, "STUCK_S", 0.3)

    def sleep(*_: Any) -> None:
        time.sleep(10)

    monkeypatch.setattr(Preparation, "prepare", sleep)
    await submit(connection, request("a"))
    with pytest.raises(StuckError):
        await asyncio.wait_for(stuck.task, 8)
    await stuck.close()
    monkeypatch.undo()
    await start("preprocess-2")
    assert [ticket.request for ticket in await tickets(connection, 1)] == ["a"]


async def test_a_model_that_comes_later(connection: Connection, topology: Topology, start: Start) -> None:
    """A worker that starts while preprocess runs: its model is served from its card on."""
    await start()
    await submit(connection, request("early"), model="late")
    assert (await ends(connection, topology, 1))[0].fault.code == "model_not_found"
    await Registry(connection).publish_model(card("late", name="late"), files(t256()))
    await asyncio.sleep(0.3)
    await submit(connection, request("now"), model="late")
    assert [ticket.request for ticket in await tickets(connection, 1, "late")] == ["now"]


async def test_stop_gives_parked_requests_back_at_once(
    connection: Connection, topology: Topology, start: Start
) -> None:
    """A soft stop waits for no room: another replica takes them over."""
    replica = await start()
    for number in range(topology.tickets_per_subject + 2):
        await submit(connection, request(f"r{number}"))

    async def jammed() -> bool:
        return await stored(connection, subjects.REQUESTS) == 2

    await until(jammed)
    async with asyncio.timeout(4):
        await replica.stop()
    assert await stored(connection, subjects.REQUESTS) == 2
    await start("preprocess-2")
    assert len(await tickets(connection, topology.tickets_per_subject + 2)) == topology.tickets_per_subject + 2
    await settled(connection)
