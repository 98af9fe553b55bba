"""What `/live/state` says: the pipeline as one snapshot shows it, in the words of the page. Pure."""

from collections.abc import Iterable

import msgspec

from broker import subjects
from broker.depths import Depths
from schemas.control import WorkerStatus
from stages.edge.live.recent import Slow
from stages.edge.live.watching import Seen
from stages.observing.backlogs import ModelBacklog
from stages.observing.pipeline import Partition, Snapshot


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of the graph, all partitions together. `waiting` are not taken yet, `in_hand` not settled yet.

    None: not known, or nothing of the kind. `full` is the share of its room in bytes that is used, of its fullest part.
    """

    messages: int
    bytes: int
    full: float
    waiting: int | None = None
    in_hand: int | None = None
    redelivered: int | None = None
    unclaimed: int | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU worker; `kv_used` is a share, None where its engine has no such thing."""

    name: str
    model: str
    state: str
    running: int
    waiting: int
    slots: int
    kv_used: float | None
    step_ms: float
    tokens_in: int
    tokens_out: int


class Owner(msgspec.Struct, frozen=True):
    """A postprocess replica ("": nobody), its partitions and what their journals still hold."""

    name: str
    partitions: list[int]
    lag: int


class Replicas(msgspec.Struct, frozen=True, kw_only=True):
    """Of each stage; None: not known."""

    preprocess: int | None
    schedule: int | None
    inference: int | None
    postprocess: int | None


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """All of the pipeline. `at` is Unix seconds, `unseen` says of each part that is missing why."""

    at: float
    requests_per_s: float
    tokens_per_s: float
    queues: dict[str, Queue]
    replicas: Replicas
    workers: list[Worker]
    backlogs: list[ModelBacklog]
    owners: list[Owner]
    unowned: list[int]
    partitions: int
    dead_letters: int | None
    unseen: dict[str, str]


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """What only this edge knows."""

    name: str
    version: str
    in_hand: int
    slowest: list[Slow]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything. `trouble` says why `pipeline` is old or missing."""

    number: int
    trouble: str
    pipeline: Pipeline | None
    edge: Edge


def state_of(seen: Seen, edge: Edge) -> State:
    """The answer to one look."""
    pipeline = None if seen.snapshot is None else pipeline_of(seen.snapshot, seen.preprocesses)
    return State(number=seen.number, trouble=seen.trouble, pipeline=pipeline, edge=edge)


def pipeline_of(snapshot: Snapshot, preprocesses: int | None) -> Pipeline:
    """What could not be looked at is None or empty."""
    unseen = snapshot.unseen
    dead = snapshot.depths.streams.get(subjects.DEAD)
    return Pipeline(
        at=round(snapshot.at, 3),
        requests_per_s=round(snapshot.requests_per_s, 2),
        tokens_per_s=round(snapshot.tokens_per_s, 1),
        queues=_queues(snapshot.depths),
        replicas=Replicas(
            preprocess=preprocesses,
            schedule=None if "backlogs" in unseen else len(snapshot.schedulers),
            inference=None if "workers" in unseen else len(snapshot.workers),
            postprocess=None if "leases" in unseen else len(snapshot.postprocesses),
        ),
        workers=[_worker(each) for each in snapshot.workers],
        backlogs=snapshot.backlogs,
        owners=[] if "leases" in unseen else _owners(snapshot.partitions),
        unowned=[] if "leases" in unseen else [each.number for each in snapshot.partitions if not each.owner],
        partitions=len(snapshot.partitions),
        dead_letters=dead.messages if dead else None,
        unseen=unseen,
    )


def _queues(depths: Depths) -> dict[str, Queue]:
    """Those that can be seen, by name; journals and results as one each."""
    found = {
        "REQUESTS": _queue(depths, [subjects.REQUESTS]),
        "TICKETS": _queue(depths, [subjects.TICKETS]),
        "JOURNAL": _queue(depths, _named(depths, "JOURNAL_")),
        "RESULTS": _queue(depths, _named(depths, "RESULTS_")),
    }
    return {name: queue for name, queue in found.items() if queue is not None}


def _named(depths: Depths, start: str) -> list[str]:
    return [name for name in depths.streams if name.startswith(start)]


def _queue(depths: Depths, names: Iterable[str]) -> Queue | None:
    streams = {name: depths.streams[name] for name in names if name in depths.streams}
    if not streams:
        return None
    consumers = [each for each in depths.consumers.values() if each.stream in streams]
    unclaimed = [depths.unclaimed[name] for name in streams if name in depths.unclaimed]
    return Queue(
        messages=sum(each.messages for each in streams.values()),
        bytes=sum(each.bytes for each in streams.values()),
        full=max(round(each.bytes / each.max_bytes, 4) if each.max_bytes > 0 else 0.0 for each in streams.values()),
        waiting=sum(each.pending for each in consumers) if consumers else None,
        in_hand=sum(each.ack_pending for each in consumers) if consumers else None,
        redelivered=sum(each.redelivered for each in consumers) if consumers else None,
        unclaimed=sum(unclaimed) if unclaimed else None,
    )


def _worker(status: WorkerStatus) -> Worker:
    free = status.credits.kv_tokens / status.kv_capacity if status.kv_capacity else None
    return Worker(
        name=status.worker,
        model=status.model,
        state=status.state,
        running=status.running,
        waiting=status.waiting,
        slots=status.max_slots,
        kv_used=None if free is None else round(min(1.0, max(0.0, 1 - free)), 4),
        step_ms=round(status.step_s * 1000, 2),
        tokens_in=status.tokens_in,
        tokens_out=status.tokens_out,
    )


def _owners(partitions: list[Partition]) -> list[Owner]:
    names = sorted({each.owner for each in partitions if each.owner})
    return [
        Owner(
            name,
            [each.number for each in partitions if each.owner == name],
            sum(each.lag for each in partitions if each.owner == name),
        )
        for name in names
    ]
