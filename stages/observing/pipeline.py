"""What `headrace status` knows: streams and their depth, partitions, workers, backlogs, and how fast it all moves."""

import asyncio
import time
from dataclasses import dataclass, field

import structlog

from broker import subjects
from broker.connection import Connection, Inbound, Subscription
from broker.leases import owners
from broker.topology import Depths, Topology, depths, verify
from schemas.codec import WireError, decode
from schemas.control import WorkerStatus
from stages.observing.backlogs import HeardBacklogs, ModelBacklog

log = structlog.get_logger()

LISTEN_S = 0.7
"""Longer than the time between two heartbeats, or two words of a scheduler: every one is heard."""

SILENT_AFTER_S = 2.0


@dataclass(frozen=True)
class Partition:
    """One partition: entries that its journal still holds, results stored, and who owns it ("" when nobody does)."""

    number: int
    lag: int
    results: int
    owner: str


@dataclass(frozen=True)
class Snapshot:
    """The pipeline at one moment. Rates count from the snapshot before, per second."""

    at: float
    depths: Depths
    partitions: list[Partition]
    workers: list[WorkerStatus]
    requests_per_s: float = 0.0
    tokens_per_s: float = 0.0
    backlogs: list[ModelBacklog] = field(default_factory=list[ModelBacklog])


@dataclass
class _Counts:
    """What rates are made of."""

    at: float
    requests: int
    tokens: dict[str, int]


@dataclass
class _Heard:
    status: WorkerStatus
    at: float = field(default_factory=time.monotonic)


class Observer:
    """Looks at a pipeline over one connection; takes no part in it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._heard: dict[str, _Heard] = {}
        self._backlogs = HeardBacklogs()
        self._before: _Counts | None = None

    async def start(self, patience_s: float) -> None:
        """Raises `Unavailable` where there are no streams of Headrace."""
        self._topology: Topology = await verify(self._connection, patience_s)
        self._subscriptions: list[Subscription] = [
            await self._connection.subscribe(subjects.worker("*", "*"), self._on_worker),
            await self._connection.subscribe(subjects.backlog("*"), self._on_backlog),
        ]
        await self._connection.prove_subscriptions()

    async def snapshot(self, listen_s: float = LISTEN_S) -> Snapshot:
        """Listens for `listen_s`, then looks. The first one looks twice, to have rates. Raises `BrokerError`."""
        if self._before is None:
            self._before = self._count(await depths(self._connection))
        await asyncio.sleep(listen_s)
        found = await depths(self._connection)
        now = self._count(found)
        before, self._before = self._before, now
        return Snapshot(
            at=time.time(),
            depths=found,
            partitions=await self._partitions(found),
            workers=self._workers(),
            requests_per_s=_rate(now.requests - before.requests, now, before),
            tokens_per_s=_rate(_more(now.tokens, before.tokens), now, before),
            backlogs=self._backlogs.by_model(),
        )

    async def close(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()

    async def _on_worker(self, message: Inbound) -> None:
        try:
            status = decode(WorkerStatus, message.data)
        except WireError as error:
            log.debug("status.heartbeat_unreadable", subject=message.subject, error=str(error))
            return
        self._heard[status.worker] = _Heard(status)

    async def _on_backlog(self, message: Inbound) -> None:
        try:
            self._backlogs.hear(message)
        except WireError as error:
            log.debug("status.backlog_unreadable", subject=message.subject, error=str(error))

    def _workers(self) -> list[WorkerStatus]:
        """Those that still beat, by model and name."""
        now = time.monotonic()
        self._heard = {name: heard for name, heard in self._heard.items() if now - heard.at < SILENT_AFTER_S}
        return sorted((heard.status for heard in self._heard.values()), key=lambda each: (each.model, each.worker))

    async def _partitions(self, found: Depths) -> list[Partition]:
        owned = await owners(self._connection)
        return [
            Partition(
                number=number,
                lag=_messages(found, subjects.journal_stream(number)),
                results=_messages(found, subjects.results_stream(number)),
                owner=owned.get(number, ""),
            )
            for number in range(self._topology.partitions)
        ]

    def _count(self, found: Depths) -> _Counts:
        requests = found.streams.get(subjects.REQUESTS)
        tokens = {worker.worker: worker.tokens_out for worker in self._workers()}
        return _Counts(time.monotonic(), requests.last_sequence if requests else 0, tokens)


def _messages(found: Depths, stream: str) -> int:
    depth = found.streams.get(stream)
    return depth.messages if depth else 0


def _more(now: dict[str, int], before: dict[str, int]) -> int:
    """Tokens since then, by the workers that were heard both times; one that started anew counts from zero."""
    return sum(max(0, count - before[name]) for name, count in now.items() if name in before)


def _rate(more: int, now: _Counts, before: _Counts) -> float:
    return max(0, more) / max(now.at - before.at, 1e-3)
