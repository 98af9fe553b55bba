"""What `headrace status` knows: streams and their depth, partitions, workers, backlogs, and how fast it all moves."""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial

import structlog

from broker import subjects
from broker.connection import Connection, Inbound, Subscription
from broker.depths import ConsumerDepth, StreamDepth, consumer_depths, depths_of, stream_depths
from broker.jetstream_api import API
from broker.lease_bucket import Picture
from broker.lease_view import LeaseView
from broker.topology import Depths, Topology, verify
from schemas.codec import WireError, decode
from schemas.control import WorkerStatus
from stages.observing.backlogs import HeardBacklogs, ModelBacklog
from stages.observing.parts import Parts

log = structlog.get_logger()

LISTEN_S = 0.7
"""Longer than the time between two heartbeats, or two words of a scheduler: every one is heard."""

SILENT_AFTER_S = 2.0

STREAMS, CONSUMERS = f"{API}.STREAM.LIST", f"{API}.CONSUMER.LIST."
LEASES = f"{API}.DIRECT.GET.KV_{subjects.PARTITIONS_BUCKET}"
"""What is published to for each part."""


@dataclass(frozen=True)
class Partition:
    """One partition: entries that its journal still holds, results stored, and who owns it ("" when nobody does)."""

    number: int
    lag: int
    results: int
    owner: str


@dataclass(frozen=True)
class Snapshot:
    """The pipeline at one moment. Rates count from the snapshot before, per second.

    `schedulers` and `postprocesses` are the replicas that are there, `unseen` the parts that could not be looked at,
    with the reason (`streams`, `consumers`, `leases`, `workers`, `backlogs`).
    """

    at: float
    depths: Depths
    partitions: list[Partition]
    workers: list[WorkerStatus]
    requests_per_s: float = 0.0
    tokens_per_s: float = 0.0
    backlogs: list[ModelBacklog] = field(default_factory=list[ModelBacklog])
    schedulers: list[str] = field(default_factory=list[str])
    postprocesses: list[str] = field(default_factory=list[str])
    unseen: dict[str, str] = field(default_factory=dict[str, str])


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
    """Looks at a pipeline over one connection; takes no part in it.

    `partly`: what it may not see is missing, instead of an error. An owner whose lease runs out is seen as gone by who
    looks every second or two.
    """

    def __init__(self, connection: Connection, *, partly: bool = False) -> None:
        self._connection = connection
        self._parts = Parts(connection, partly=partly)
        self._leases = LeaseView(connection)
        self._heard: dict[str, _Heard] = {}
        self._backlogs = HeardBacklogs()
        self._before: _Counts | None = None
        self._subscriptions: list[Subscription] = []

    async def start(self, patience_s: float) -> None:
        """Raises `Unavailable` where there are no streams of Headrace."""
        self._topology: Topology = await verify(self._connection, patience_s)
        for subject, handler in (
            (subjects.worker("*", "*"), self._on_worker),
            (subjects.backlog("*"), self._on_backlog),
        ):
            self._subscriptions.append(await self._connection.subscribe(subject, handler))
        await self._connection.prove_subscriptions()

    async def snapshot(self, listen_s: float = LISTEN_S) -> Snapshot:
        """Listens for `listen_s`, then looks. The first one looks twice, to have rates. Raises `BrokerError`."""
        if self._before is None:
            self._before = self._count(await self._depths())
        await asyncio.sleep(listen_s)
        found = await self._depths()
        leases = await self._parts.have("leases", LEASES, self._leases.look, Picture({}, frozenset()))
        now = self._count(found)
        before, self._before = self._before, now
        self._parts.heard("workers", subjects.worker("*", "*"))
        self._parts.heard("backlogs", subjects.backlog("*"))
        return Snapshot(
            at=time.time(),
            depths=found,
            partitions=self._partitions(found, leases.holders()),
            workers=self._workers(),
            requests_per_s=_rate(now.requests - before.requests, now, before),
            tokens_per_s=_rate(_more(now.tokens, before.tokens), now, before),
            backlogs=self._backlogs.by_model(),
            schedulers=self._backlogs.schedulers(),
            postprocesses=sorted(leases.present()),
            unseen=dict(self._parts.missing),
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

    async def _depths(self) -> Depths:
        """Without its consumers nobody knows what of a queue is unclaimed."""
        nothing: tuple[dict[str, StreamDepth], dict[str, ConsumerDepth]] = {}, {}
        streams = await self._parts.have("streams", STREAMS, lambda: stream_depths(self._connection), nothing[0])
        ask = partial(consumer_depths, self._connection, streams)
        consumers = await self._parts.have("consumers", CONSUMERS, ask, nothing[1])
        return Depths(streams, {}, {}) if "consumers" in self._parts.missing else depths_of(streams, consumers)

    def _partitions(self, found: Depths, owned: dict[int, str]) -> list[Partition]:
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
