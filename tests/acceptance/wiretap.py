"""Somebody who listens in on a pipeline's broker, takes no part, and knows what is stored."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from broker import subjects
from broker.connection import BrokerOptions, Connection, Inbound
from broker.depths import depths
from broker.leases import owners
from broker.replay import stored_results
from broker.topology import count_partitions
from schemas.codec import decode
from schemas.control import WorkerStatus
from schemas.grant import Grant
from schemas.journal import JournalMessage
from schemas.result import Result
from tests.acceptance.waiting import until

TENANT = "default"
SILENT_S = 1.2


@dataclass
class Wiretap:
    """`grants` by scheduler, `tokens` by worker: how many messages each has sent since the last `forget`.

    `opens` counts attempts by key, `released` has when each key was handed back, in seconds of `time.monotonic`;
    `finished` are the keys of which some engine has said everything; `at` has who said a key's last token.
    """

    connection: Connection
    partitions: int = 0
    workers: dict[str, WorkerStatus] = field(default_factory=dict[str, WorkerStatus])
    heard_at: dict[str, float] = field(default_factory=dict[str, float])
    grants: Counter[str] = field(default_factory=Counter[str])
    tokens: Counter[str] = field(default_factory=Counter[str])
    opens: Counter[str] = field(default_factory=Counter[str])
    released: dict[str, float] = field(default_factory=dict[str, float])
    finished: set[str] = field(default_factory=set[str])
    at: dict[str, str] = field(default_factory=dict[str, str])
    _reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))

    async def start(self) -> None:
        self.partitions = await count_partitions(self.connection)
        await self.connection.subscribe(subjects.worker("*", "*"), self._on_heartbeat)
        await self.connection.subscribe("hr.grant.*", self._on_grant)
        await self.connection.subscribe("hr.journal.*", self._on_journal)
        await self.connection.prove_subscriptions()

    def forget(self) -> None:
        self.grants.clear()
        self.tokens.clear()

    @property
    def running(self) -> int:
        """Requests in the engines of all workers that were heard of lately."""
        return sum(status.running for status in self.alive)

    @property
    def tokens_in(self) -> int:
        """Prompt tokens that all workers have computed."""
        return sum(status.tokens_in for status in self.workers.values())

    @property
    def alive(self) -> list[WorkerStatus]:
        now = time.monotonic()
        return [status for name, status in self.workers.items() if now - self.heard_at[name] < SILENT_S]

    async def messages(self, stream: str) -> int:
        return (await depths(self.connection)).streams[stream].messages

    async def held(self, stream: str) -> int:
        """Messages that were delivered to some process and are not settled yet."""
        found = (await depths(self.connection)).consumers
        return sum(each.ack_pending for each in found.values() if each.stream == stream)

    async def redelivered(self, stream: str) -> int:
        """Those of them that were delivered more than once."""
        found = (await depths(self.connection)).consumers
        return sum(each.redelivered for each in found.values() if each.stream == stream)

    async def journals(self) -> int:
        """Messages in all journals: what their owners have not dealt with."""
        found = (await depths(self.connection)).streams
        return sum(depth.messages for name, depth in found.items() if name.startswith("JOURNAL_"))

    async def settled(self, seconds: float = 30) -> None:
        """Returns once nothing is left of any request: no request, no ticket, no journal entry, an idle engine."""

        async def nothing_left() -> bool:
            left = [await self.messages(stream) for stream in (subjects.REQUESTS, subjects.TICKETS)]
            return not (any(left) or await self.journals() or self.running)

        await until(nothing_left, "empty streams, idle engines", seconds=seconds)

    async def terminals(self, request_id: str, choice: int = 0) -> list[Result]:
        """The stored results that end a choice of a request."""
        partition = subjects.partition_of(f"{TENANT}.{request_id}", self.partitions)
        subject = subjects.result(partition, TENANT, "*", request_id)
        async with self._reading:  # a hundred at once would be a load of its own
            stored = await stored_results(self.connection, partition, subject)
        return [result for result in stored if result.terminal and result.choice == choice]

    async def terminal(self, request_id: str, choice: int = 0) -> str:
        """The finish or the fault's code of the one terminal result that there has to be."""
        found = await self.terminals(request_id, choice)
        assert len(found) == 1, (request_id, found)
        fault = found[0].fault
        return fault.code if fault else found[0].finish

    async def owners(self) -> list[str]:
        """The owner of every partition, "" where it has none."""
        owned = await owners(self.connection)
        return [owned.get(partition, "") for partition in range(self.partitions)]

    async def _on_heartbeat(self, message: Inbound) -> None:
        status = decode(WorkerStatus, message.data)
        self.workers[status.worker] = status
        self.heard_at[status.worker] = time.monotonic()

    async def _on_grant(self, message: Inbound) -> None:
        self.grants[decode(Grant, message.data).scheduler] += 1

    async def _on_journal(self, message: Inbound) -> None:
        entry = decode(JournalMessage, message.data)
        self.tokens[entry.origin] += bool(entry.tokens)
        self.opens.update(opened.key for opened in entry.opens)
        self.at.update((tokens.key, entry.origin) for tokens in entry.tokens)
        self.finished.update(tokens.key for tokens in entry.tokens if tokens.finish)
        self.released.update((each.key, time.monotonic()) for each in entry.released)


@contextlib.asynccontextmanager
async def listening(url: str) -> AsyncGenerator[Wiretap]:
    """A wiretap that has heard every worker."""
    connection = await Connection.open(BrokerOptions(url, name="wiretap"), patience_s=10)
    tap = Wiretap(connection)
    await tap.start()
    await asyncio.sleep(0.7)  # longer than the time between two heartbeats
    try:
        yield tap
    finally:
        await connection.close()
