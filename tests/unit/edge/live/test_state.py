"""What `/live/state` says of a snapshot."""

import json

import msgspec

from broker.depths import ConsumerDepth, Depths, StreamDepth, depths_of
from schemas.control import WorkerStatus
from schemas.grant import Credits
from stages.edge.live.recent import Slow
from stages.edge.live.state import Edge, pipeline_of, state_of
from stages.edge.live.watching import Seen
from stages.observing.backlogs import ModelBacklog
from stages.observing.pipeline import Partition, Snapshot

EDGE = Edge(name="edge-1", version="0", in_hand=0, slowest=[])


def stream(messages: int, used: int = 0, room: int = 100) -> StreamDepth:
    return StreamDepth(messages, used, room, 1, messages)


def consumer(name: str, pending: int, in_hand: int) -> ConsumerDepth:
    return ConsumerDepth(name, pending, in_hand, redelivered=1, waiting_pulls=0)


STREAMS = {
    "REQUESTS": stream(5, used=50),
    "TICKETS": stream(9),
    "JOURNAL_0": stream(3, used=10),
    "JOURNAL_1": stream(4, used=90),
    "RESULTS_0": stream(10),
    "DEAD": stream(2),
    "KV_hr_models": stream(1),
}
CONSUMERS = {"preprocess": consumer("REQUESTS", 3, 2), "schedule_m": consumer("TICKETS", 1, 6)}
WORKER = WorkerStatus(
    worker="w1",
    model="m",
    state="ready",
    credits=Credits(1, 250),
    sent=1,
    max_slots=4,
    running=3,
    kv_capacity=1000,
    step_s=0.0125,
)
SNAPSHOT = Snapshot(
    at=12.5,
    depths=depths_of(STREAMS, CONSUMERS),
    partitions=[Partition(0, 3, 10, "post-1"), Partition(1, 4, 0, "")],
    workers=[WORKER],
    requests_per_s=1.5,
    tokens_per_s=99.96,
    backlogs=[ModelBacklog("m", 1, 2, 300, 50.0, 6.0)],
    schedulers=["sched-1", "sched-2"],
    postprocesses=["post-1"],
)


def test_queues_with_what_waits_and_what_is_in_hand() -> None:
    """Partitions are added up; the fullest of them says how full the queue is."""
    queues = pipeline_of(SNAPSHOT, 2).queues
    assert list(queues) == ["REQUESTS", "TICKETS", "JOURNAL", "RESULTS"]
    requests, tickets, journal = queues["REQUESTS"], queues["TICKETS"], queues["JOURNAL"]
    assert (requests.messages, requests.waiting, requests.in_hand, requests.full) == (5, 3, 2, 0.5)
    assert (tickets.messages, tickets.unclaimed) == (9, 2)
    assert (journal.messages, journal.full, journal.waiting) == (7, 0.9, None)


def test_replicas_workers_and_what_is_wrong() -> None:
    """A share of KV that is used, a step in milliseconds; partitions that nobody owns; dead letters."""
    pipeline = pipeline_of(SNAPSHOT, 2)
    assert msgspec.to_builtins(pipeline.replicas) == {
        "preprocess": 2,
        "schedule": 2,
        "inference": 1,
        "postprocess": 1,
    }
    (worker,) = pipeline.workers
    assert (worker.running, worker.slots, worker.kv_used, worker.step_ms) == (3, 4, 0.75, 12.5)
    assert [(owner.name, owner.partitions, owner.lag) for owner in pipeline.owners] == [("post-1", [0], 3)]
    assert (pipeline.unowned, pipeline.partitions, pipeline.dead_letters) == ([1], 2, 2)


def test_what_cannot_be_seen_is_not_zero() -> None:
    """None, or missing, with the reason; no partition is called ownerless by who may not see owners."""
    unseen: dict[str, str] = {}
    for part in ("streams", "consumers", "leases", "workers", "backlogs"):
        unseen[part] = "not permitted"
    blind = Snapshot(1.0, Depths({}, {}, {}), [Partition(0, 0, 0, "")], [], unseen=unseen)
    pipeline = pipeline_of(blind, None)
    assert pipeline.queues == {}
    assert set(msgspec.to_builtins(pipeline.replicas).values()) == {None}
    assert (pipeline.unowned, pipeline.owners, pipeline.dead_letters) == ([], [], None)
    assert pipeline.unseen == unseen


def test_without_consumers_the_depth_is_there() -> None:
    """What waits and what is in hand is not known then."""
    found = Depths(STREAMS, {}, {})
    queue = pipeline_of(Snapshot(1.0, found, [], []), 1).queues["REQUESTS"]
    assert (queue.messages, queue.waiting, queue.in_hand, queue.unclaimed) == (5, None, None, None)


def test_the_state_as_json() -> None:
    """With trouble the last snapshot is still there, or none; numbers only, no text of anybody."""
    slow = Slow(id="r", model="m", route="/v1/chat/completions", seconds=1.0, status=0)
    edge = msgspec.structs.replace(EDGE, slowest=[slow])
    told = json.loads(msgspec.json.encode(state_of(Seen(3, SNAPSHOT, 1, "the broker is away"), edge)))
    assert (told["number"], told["trouble"]) == (3, "the broker is away")
    assert told["pipeline"]["queues"]["REQUESTS"]["messages"] == 5
    assert set(told["edge"]["slowest"][0]) == {
        *("id", "model", "route", "seconds", "status", "outcome", "input_tokens", "output_tokens"),
    }
    assert state_of(Seen(1, None, trouble="x"), EDGE).pipeline is None
