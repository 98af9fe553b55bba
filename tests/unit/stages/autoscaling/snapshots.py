"""Snapshots of a pipeline, as a test wants them."""

from typing import Any

from broker.depths import ConsumerDepth, Depths, StreamDepth
from schemas.control import WorkerState, WorkerStatus
from schemas.grant import Credits
from stages.observing.backlogs import ModelBacklog
from stages.observing.pipeline import Partition, Snapshot
from stages.replicas import ReplicaState


def snapshot(at: float = 100.0, **parts: Any) -> Snapshot:
    """An idle pipeline of two partitions, but for `parts`."""
    streams = {name: stream() for name in ("REQUESTS", "TICKETS", "JOURNAL_0", "JOURNAL_1")}
    consumers = {"preprocess": consumer("REQUESTS"), "schedule_m": consumer("TICKETS")}
    found: dict[str, Any] = {
        "streams": streams | parts.pop("streams", {}),
        "consumers": consumers | parts.pop("consumers", {}),
        "unclaimed": parts.pop("unclaimed", {}),
    }
    partitions = [Partition(number, 0, 0, "postprocess-a") for number in range(2)]
    quiet: dict[str, Any] = {"workers": [], "backlogs": [backlog()], "postprocesses": ["postprocess-a"]}
    return Snapshot(at=at, depths=Depths(**found), partitions=partitions, **(quiet | parts))


def stream(messages: int = 0, first: int = 1, last: int = 0) -> StreamDepth:
    return StreamDepth(messages, 0, -1, first, last)


def consumer(of: str, pending: int = 0, in_hand: int = 0) -> ConsumerDepth:
    return ConsumerDepth(of, pending, in_hand, 0, 0)


def backlog(model: str = "m", tickets: int = 0, seconds: float = 0.0) -> ModelBacklog:
    return ModelBacklog(model, 1, tickets, tickets * 100, 0.0, seconds)


def worker(name: str = "w", running: int = 0, kv_free: int = 1000, **more: Any) -> WorkerStatus:
    """Of ten slots and a thousand tokens of KV cache."""
    state: WorkerState = more.pop("state", "ready")
    values: dict[str, Any] = {"model": "m", "max_slots": 10, "kv_capacity": 1000, "running": running} | more
    return WorkerStatus(worker=name, state=state, credits=Credits(10 - running, kv_free), sent=1, **values)


def replicas(ready: int | None = None, **counts: int) -> ReplicaState:
    """`inference__m=2` is the group `inference:m`."""
    found = {name.replace("__", ":"): count for name, count in counts.items()}
    return ReplicaState(found, {name: count if ready is None else ready for name, count in found.items()})
