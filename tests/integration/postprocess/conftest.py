"""A model, its streams, as many postprocess replicas as a test asks for, and the tests in the place of all others."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest_asyncio

from broker import subjects
from broker.assembly import AnswerAssembly
from broker.chunk import Chunk
from broker.connection import BrokerOptions, Connection, Inbound, Unavailable
from broker.jetstream_api import call
from broker.journal import JournalWriter, lag
from broker.publisher import Publisher
from broker.registry import Registry
from broker.results import ResultHistory
from broker.server import EmbeddedServer
from broker.topology import Topology, ensure_schedule_consumer
from broker.work_queue import Delivery, WorkQueue
from schemas.codec import decode, encode
from schemas.control import Drop
from schemas.journal import End, JournalMessage, Open, OpenReply, Released, Tokens
from schemas.model import ModelCard
from schemas.result import Result
from schemas.ticket import AnswerSpec, EngineSampling, Ticket
from stages.lifecycle import StageContext
from stages.postprocess.settings import PostprocessSettings
from stages.postprocess.stage import run
from stages.telemetry import Telemetry
from tests.integration.postprocess.waiting import until, until_async
from tests.t256 import IM_END, t256

MODEL, TENANT, SESSION, WORKER = "t256", "acme", "s1", "w1"

CARD = ModelCard(
    slug=MODEL,
    name=MODEL,
    engine="simulated",
    context_length=4096,
    vocab_size=258,
    eos_ids=[IM_END],
    defaults=EngineSampling(max_tokens=0),
)


class Replica:
    """The stage in this process, on a connection of its own."""

    def __init__(self, connection: Connection, topology: Topology, name: str) -> None:
        self.ready = asyncio.Event()
        self.context = StageContext(
            connection=connection,
            topology=topology,
            stage="postprocess",
            instance=name,
            telemetry=Telemetry("postprocess", name, environ={}),
            stopping=asyncio.Event(),
            grace_s=4.0,
            on_ready=lambda ready: self.ready.set() if ready else self.ready.clear(),
        )
        self.task = asyncio.create_task(run(self.context, PostprocessSettings()))

    async def stop(self) -> None:
        """Soft, as by SIGTERM."""
        self.context.stopping.set()
        await self.task
        await self.context.connection.close()
        self.context.telemetry.close()

    async def die(self) -> None:
        """As by SIGKILL: the connection is gone first, so nothing is said on the way out."""
        await self.context.connection.client.close()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.context.telemetry.close()


@dataclass(frozen=True)
class Request:
    """One choice with its ticket in hand, and the partition that it belongs to."""

    key: str
    choice: int
    partition: int
    ticket: Delivery

    @property
    def id(self) -> str:
        return self.key.partition(".")[2]


class World:
    """Client, preprocess, scheduler and worker, played by the test."""

    def __init__(self, url: str, connection: Connection, topology: Topology) -> None:
        self.connection = connection
        self.topology = topology
        self.journal = JournalWriter(connection)
        self.drops: list[Drop] = []
        self._url = url
        self._replicas: list[Replica] = []
        self._deliveries: dict[int, Delivery] = {}
        self._numbers = itertools.count(1)

    async def start(self) -> None:
        await Registry(self.connection).publish_model(CARD, {"tokenizer.json": t256().to_str().encode()})
        await ensure_schedule_consumer(self.connection, MODEL)
        self._tickets = WorkQueue(
            self.connection,
            subjects.TICKETS,
            subjects.schedule_consumer(MODEL),
            slots=1000,
            ack_wait_s=self.topology.ticket_ack_wait_s,
        )
        await self._tickets.start()
        self._pulling = asyncio.create_task(self._pull())
        await self.connection.subscribe(subjects.drop(WORKER), self._on_drop)
        await self.connection.prove_subscriptions()

    async def end(self) -> None:
        for replica in self._replicas:
            if not replica.task.done():
                await replica.stop()
        await self._tickets.abandon()
        self._pulling.cancel()
        await asyncio.gather(self._pulling, return_exceptions=True)

    async def replica(self) -> Replica:
        """One more, ready."""
        name = f"postprocess-{next(self._numbers)}"
        connection = await Connection.open(BrokerOptions(url=self._url, name=name), patience_s=10)
        replica = Replica(connection, self.topology, name)
        self._replicas.append(replica)
        ready = asyncio.create_task(replica.ready.wait())
        await asyncio.wait({ready, replica.task}, return_when=asyncio.FIRST_COMPLETED)
        if replica.task.done():
            replica.task.result()
        return replica

    # What the others do

    async def submit(self, request: str, choice: int = 0, answer: AnswerSpec | None = None) -> Request:
        """Publishes a ticket and takes it, as preprocess and a scheduler do."""
        key = f"{TENANT}.{request}"
        ticket = Ticket(
            tenant=TENANT,
            request=request,
            choice=choice,
            session=SESSION,
            model=MODEL,
            prompt=bytes(12),
            sampling=EngineSampling(max_tokens=1000),
            deadline_ms=60_000,
            partition=subjects.partition_of(key, self.topology.partitions),
            answer=answer or AnswerSpec(),
        )
        sequence = await Publisher(self.connection).publish(
            subjects.ticket(MODEL, TENANT), encode(ticket), message_id=f"{key}.{choice}"
        )
        delivery = await until(lambda: self._deliveries.get(sequence))
        self._tickets.let_go(delivery)
        return Request(key, choice, ticket.partition, delivery)

    async def redelivered(self, request: Request, within_s: float = 15.0) -> Request:
        """The same ticket, once it was handed out again."""
        sequence = request.ticket.sequence
        delivery = await until(
            lambda: found if (found := self._deliveries[sequence]).deliveries > request.ticket.deliveries else None,
            within_s,
        )
        self._tickets.let_go(delivery)
        return replace(request, ticket=delivery)

    async def open(self, request: Request, *, fresh: bool = True) -> tuple[int, asyncio.Future[OpenReply]]:
        """A scheduler's `open`; its attempt, and the owner's reply where one is awaited."""
        reply: asyncio.Future[OpenReply] = asyncio.get_running_loop().create_future()
        inbox = self.connection.new_inbox()

        async def on_reply(message: Inbound) -> None:
            reply.set_result(decode(OpenReply, message.data))

        await self.connection.subscribe(inbox, on_reply)
        opened = Open(
            key=request.key,
            choice=request.choice,
            model=MODEL,
            session=SESSION,
            sequence=request.ticket.sequence,
            ack=request.ticket.ack_subject,
            fresh=fresh,
            reply="" if fresh else inbox,
            worker=WORKER if fresh else "",
        )
        return await self.append(request, JournalMessage(origin="scheduler", opens=[opened])), reply

    async def write(self, request: Request, attempt: int, offset: int, text: str, *, finish: str = "") -> int:
        """A worker's tokens."""
        tokens = Tokens(
            key=request.key,
            choice=request.choice,
            attempt=attempt,
            offset=offset,
            ids=list(text.encode()),
            finish=finish,
        )
        return await self.append(request, JournalMessage(origin=WORKER, tokens=[tokens]))

    async def hand_back(self, request: Request, attempt: int, *, died: bool = False) -> int:
        released = Released(request.key, request.choice, attempt, died=died, worker=WORKER)
        return await self.append(request, JournalMessage(origin=WORKER, released=[released]))

    async def fail(self, request: Request, end: End) -> int:
        return await self.append(request, JournalMessage(origin="somebody", ends=[end]))

    async def append(self, request: Request, message: JournalMessage) -> int:
        """As every writer does it: until it is stored."""
        while True:
            try:
                return await self.journal.append(request.partition, message)
            except Unavailable:
                await asyncio.sleep(0.05)

    # What a client and an operator see

    async def stored(self, request: Request) -> list[Result]:
        history = ResultHistory(self.connection, request.partition)
        results = await history.of(TENANT, SESSION, request.id)
        return [result for result in results if result.choice == request.choice]

    async def ended(self, request: Request, within_s: float = 10.0) -> str:
        """The text of the answer, once it has ended. Raises as `AnswerAssembly`, also for a gap between two results."""
        results = await until_async(lambda: self._terminated(request), within_s)
        assembly, chunks = AnswerAssembly(), list[Chunk | None]()
        for result in results:
            chunks.append(assembly.push(result))
        assert sum(result.terminal for result in results) == 1
        return "".join(chunk.text for chunk in chunks if chunk is not None)

    async def text_so_far(self, request: Request) -> str:
        assembly = AnswerAssembly()
        chunks = [assembly.push(result) for result in await self.stored(request)]
        return "".join(chunk.text for chunk in chunks if chunk is not None)

    async def tickets_left(self) -> int:
        return (await call(self.connection, f"STREAM.INFO.{subjects.TICKETS}"))["state"]["messages"]

    async def lags(self) -> int:
        return sum([await lag(self.connection, partition) for partition in range(self.topology.partitions)])

    async def _terminated(self, request: Request) -> list[Result] | None:
        results = await self.stored(request)
        return results if any(result.terminal for result in results) else None

    async def _pull(self) -> None:
        async for batch in self._tickets.batches():
            for delivery in batch:
                self._deliveries[delivery.sequence] = delivery

    async def _on_drop(self, message: Inbound) -> None:
        self.drops.append(decode(Drop, message.data))


@pytest_asyncio.fixture
async def world(server: EmbeddedServer, connection: Connection, topology: Topology) -> AsyncIterator[World]:
    made = World(server.url, connection, topology)
    await made.start()
    yield made
    await made.end()
