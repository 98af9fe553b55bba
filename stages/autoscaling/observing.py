"""From what is seen of a pipeline to what the decision looks at, stage by stage. No I/O."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from broker import subjects
from broker.depths import StreamDepth
from schemas.control import Pace, WorkerStatus
from stages.autoscaling.seen import UNKNOWN, Seen
from stages.observing.backlogs import ModelBacklog
from stages.observing.pipeline import Snapshot
from stages.replicas import ReplicaState

NEEDED = {
    "preprocess": ("streams", "consumers", "backlogs"),
    "inference": ("streams", "consumers", "workers", "backlogs"),
    "postprocess": ("streams", "leases"),
}
"""The parts of a snapshot without which nothing can be said of a stage."""


class NotKnown(Exception):
    """What waits for a stage cannot be told now: whoever decides keeps what there is. The text says why."""


def seen_of(group: str, now: Snapshot, before: Snapshot | None, state: ReplicaState, at: float) -> Seen:
    """What is seen of a group at the moment `at` of the decision's clock; rates count from the snapshot `before`.

    Raises `NotKnown`.
    """
    stage, _, model = group.partition(":")
    for part in NEEDED[stage]:
        if part in now.unseen:
            raise NotKnown(now.unseen[part])
    if stage == "inference":
        return _inference(model, now, before, state.replicas[group], at)
    ready = min(state.ready.get(group, 0), state.replicas[group])
    if stage == "postprocess":
        ready = min(ready, len(now.postprocesses))
    look = _requests if stage == "preprocess" else _journals
    queue, old = look(now), look(before) if before is not None else None
    passed_s = now.at - before.at if before is not None else 0.0
    return Seen(
        at=at,
        replicas=state.replicas[group],
        ready=ready,
        waiting=queue.waiting,
        backlog_s=_wait(queue, old, passed_s) if ready or not queue.waiting else UNKNOWN,
        busy=UNKNOWN,
        arrived=now.requests_per_s,
    )


def _inference(model: str, now: Snapshot, before: Snapshot | None, replicas: int, at: float) -> Seen:
    """Of one model, or ("") of all together."""
    workers = [each for each in now.workers if model in ("", each.model)]
    ready = [each for each in workers if each.state == "ready"]
    backlogs = [each for each in now.backlogs if model in ("", each.model)]
    if not backlogs and replicas:
        raise NotKnown("no scheduler was heard for 2 s")
    waiting = sum(each.tickets for each in backlogs)
    if not waiting and not any(each.running for each in workers):
        waiting = _without_worker(model, now, workers)
    return Seen(
        at=at,
        replicas=replicas,
        ready=min(len(ready), replicas),
        waiting=waiting,
        backlog_s=_longest(backlogs) if waiting else 0.0,
        busy=_mean([_share(each) for each in ready]),
        arrived=now.requests_per_s,
        computing=_computing(ready, now, before),
    )


def _without_worker(model: str, now: Snapshot, workers: Iterable[WorkerStatus]) -> int:
    """Tickets that have not ended, although no worker has anything to do and no scheduler anything that waits.

    They are of a model that no scheduler serves yet, or on their way back from who held them.
    """
    consumers = now.depths.consumers
    if model:
        found = consumers.get(subjects.schedule_consumer(model))
        unsettled = found.pending + found.ack_pending if found is not None else 0
    else:
        of_tickets = [each for each in consumers.values() if each.stream == subjects.TICKETS]
        unsettled = sum(each.pending + each.ack_pending for each in of_tickets)
        unsettled += now.depths.unclaimed.get(subjects.TICKETS, 0)
    return max(0, unsettled - sum(len(each.held) for each in workers))


def _longest(backlogs: Iterable[ModelBacklog]) -> float:
    """The wait of the model that is worst off; unknown where that of one is."""
    seconds = [each.seconds for each in backlogs if each.tickets]
    return UNKNOWN if not seconds or min(seconds) < 0 else max(seconds)


def _share(worker: WorkerStatus) -> float:
    """Of its slots, or of its KV cache, whichever is fuller."""
    slots = (worker.running + worker.waiting) / worker.max_slots if worker.max_slots else 0.0
    kv = 1 - worker.credits.kv_tokens / worker.kv_capacity if worker.kv_capacity and worker.running else 0.0
    return min(max(slots, kv, 0.0), 1.0)


def _computing(workers: Iterable[WorkerStatus], now: Snapshot, before: Snapshot | None) -> float:
    """The share of their time in which workers computed prompts, by what each says of its pace."""
    passed = now.at - before.at if before is not None else 0.0
    if before is None or passed <= 0:
        return UNKNOWN
    then = {each.worker: each.tokens_in for each in before.workers}
    return _mean(
        [
            min(max(each.tokens_in - then[each.worker], 0) * _token_s(each, each.pace) / passed, 1.0)
            for each in workers
            if each.worker in then and each.pace is not None
        ]
    )


def _token_s(worker: WorkerStatus, pace: Pace) -> float:
    """What a token of a prompt takes where steps are full of them: one that does nothing else is all that it can do."""
    return pace.prefill + (pace.base / worker.step_tokens if worker.step_tokens else 0.0)


def _mean(shares: list[float]) -> float:
    return math.fsum(shares) / len(shares) if shares else UNKNOWN


@dataclass(frozen=True)
class _Queue:
    """Of a stage whose replicas do not tell how busy they are: what waits, and what was done so far, in messages."""

    waiting: int
    done: int


def _wait(now: _Queue, before: _Queue | None, passed_s: float) -> float:
    """At the rate since the look before; unknown where there is none.

    Where nothing waited then, what does now has come since, however little of it is done. One look alone says nothing.
    """
    if not now.waiting or before is None or passed_s <= 0:
        return 0.0
    done = now.done - before.done
    wait_s = now.waiting * passed_s / done if done > 0 else UNKNOWN
    if before.waiting:
        return wait_s
    return passed_s if wait_s < 0 else min(wait_s, passed_s)


def _requests(seen: Snapshot) -> _Queue:
    """What nobody has taken counts, and what is in hand where all tickets have room: else that waits for workers."""
    stream = _stream(seen, subjects.REQUESTS)
    consumer = seen.depths.consumers.get(subjects.PREPROCESS_CONSUMER)
    done = stream.last_sequence - stream.messages
    if consumer is None:  # nobody has ever served it
        return _Queue(stream.messages, done)
    jammed = any(each.tickets for each in seen.backlogs)
    return _Queue(consumer.pending + (0 if jammed else consumer.ack_pending), done)


def _journals(seen: Snapshot) -> _Queue:
    """What their owners have dealt with is gone from them."""
    streams = [_stream(seen, subjects.journal_stream(each.number)) for each in seen.partitions]
    return _Queue(sum(each.messages for each in streams), sum(each.first_sequence for each in streams))


def _stream(seen: Snapshot, name: str) -> StreamDepth:
    found = seen.depths.streams.get(name)
    if found is None:
        raise NotKnown(f"the stream {name} has no leader")
    return found
