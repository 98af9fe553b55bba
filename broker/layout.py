"""What Headrace's streams, buckets and consumers have to look like, as JetStream's own configuration. Pure."""

from dataclasses import dataclass, field, replace
from typing import Any

from broker import subjects
from broker.jetstream_api import Json

FORMAT = 1
"""Version of the layout; stands in every stream's metadata. A program refuses one that it does not know."""

FORMAT_KEY = "headrace.format"
PARTITIONS_KEY = "headrace.partitions"
TICKET_ACK_WAIT_KEY = "headrace.ticket_ack_wait_ms"

MIB = 1024 * 1024
DUPLICATE_WINDOW_S = 120.0
MAX_WAITING = 4096

REPLAY_UNUSED_S = 5.0
"""A stream has at most 1,000 consumers, and tenants make them to read stored results: none stays that nobody uses."""

CANCEL_BYTES = 4096
"""With its headers."""


@dataclass(frozen=True)
class TopologySettings:
    """Limits of the streams; the defaults serve one machine (5 GiB on disk at the most). Sizes in bytes, times in s.

    Journal and results limits are those of one partition. `replicas` is JetStream's (1 or 3), not a stage's.
    """

    partitions: int = 2
    replicas: int = 1
    max_request_bytes: int = 4 * MIB
    requests_per_subject: int = 1024
    requests_max_bytes: int = 512 * MIB
    request_ack_wait_s: float = 5.0
    tickets_per_subject: int = 256
    tickets_max_bytes: int = 512 * MIB
    ticket_ack_wait_s: float = 15.0
    journal_max_bytes: int = 128 * MIB
    results_max_age_s: float = 1800.0
    results_max_bytes: int = 1024 * MIB
    dead_max_age_s: float = 7 * 86400.0
    dead_max_bytes: int = 64 * MIB
    models_max_bytes: int = 16 * MIB
    cancelled_max_bytes: int = 64 * MIB
    responses_max_bytes: int = 256 * MIB
    response_max_bytes: int = MIB
    artifacts_max_bytes: int = 1024 * MIB


@dataclass(frozen=True)
class StreamPlan:
    """One stream: `shape` never differs between installations of one format and P, `limits` are settings.

    `guards` keep tenants from harming others; what was made by an older program gets them from `initialise`.
    """

    name: str
    shape: Json
    limits: Json = field(default_factory=dict[str, Any])
    guards: Json = field(default_factory=dict[str, Any])

    @property
    def config(self) -> Json:
        """What `STREAM.CREATE` takes."""
        metadata = {**self.shape["metadata"], **self.limits.get("metadata", {})}
        return {"name": self.name, **self.shape, **self.limits, **self.guards, "metadata": metadata}


def storage_bytes(settings: TopologySettings) -> int:
    """What all streams together may take of a server's storage. It keeps that for them when they are made."""
    return sum(plan.limits.get("max_bytes", 0) for plan in stream_plans(settings))


@dataclass(frozen=True)
class ConsumerPlan:
    """One durable consumer, likewise."""

    stream: str
    name: str
    shape: Json
    limits: Json

    @property
    def config(self) -> Json:
        """What `CONSUMER.CREATE` takes."""
        return {"name": self.name, "durable_name": self.name, **self.shape, **self.limits}


def nanoseconds(seconds: float) -> int:
    """JetStream's unit of time."""
    return round(seconds * 1e9)


def stream_plans(settings: TopologySettings) -> list[StreamPlan]:
    """Every stream, in the order in which they are made: REQUESTS last, so whoever sees it finds the others."""
    plans: list[StreamPlan] = []
    for partition in range(settings.partitions):
        plans += [_journal(settings, partition), _results(settings, partition)]
    plans += [_dead(settings), *_buckets(settings), _tickets(settings), _requests(settings)]
    return plans


def preprocess_consumer(ack_wait_s: float) -> ConsumerPlan:
    """The one consumer of REQUESTS; all preprocess replicas pull from it."""
    shape = _work_shape("hr.request.>")
    return ConsumerPlan(subjects.REQUESTS, subjects.PREPROCESS_CONSUMER, shape, {"ack_wait": nanoseconds(ack_wait_s)})


def schedule_consumer(model: str, ack_wait_s: float) -> ConsumerPlan:
    """The one consumer of a model's tickets; all schedulers pull from it."""
    shape = _work_shape(subjects.ticket(model, "*"))
    name = subjects.schedule_consumer(model)
    return ConsumerPlan(subjects.TICKETS, name, shape, {"ack_wait": nanoseconds(ack_wait_s)})


def _work_shape(filter_subject: str) -> Json:
    # Deliveries and pending acknowledgements have no limit: a message that has used its deliveries up would stay in
    # a work queue for ever, and consumers are bounded by their slots.
    return {
        "filter_subject": filter_subject,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "max_deliver": -1,
        "max_ack_pending": -1,
        "max_waiting": MAX_WAITING,
    }


def _stream(settings: TopologySettings, name: str, stream_subjects: list[str], shape: Json, limits: Json) -> StreamPlan:
    metadata = {FORMAT_KEY: str(FORMAT), PARTITIONS_KEY: str(settings.partitions)}
    fixed = {"subjects": stream_subjects, "storage": "file", "metadata": metadata, **shape}
    return StreamPlan(name, fixed, {"num_replicas": settings.replicas, **limits})


def _work_queue(settings: TopologySettings, name: str, stream_subject: str, shape: Json, limits: Json) -> StreamPlan:
    bounded = {"retention": "workqueue", "discard": "new", "discard_new_per_subject": True}
    window = {"duplicate_window": nanoseconds(DUPLICATE_WINDOW_S)}
    return _stream(settings, name, [stream_subject], {**bounded, **shape}, {**window, **limits})


def _requests(settings: TopologySettings) -> StreamPlan:
    limits = {
        "max_msgs_per_subject": settings.requests_per_subject,
        "max_bytes": settings.requests_max_bytes,
        "max_msg_size": settings.max_request_bytes,
    }
    return _work_queue(settings, subjects.REQUESTS, "hr.request.*.*", {}, limits)


def _tickets(settings: TopologySettings) -> StreamPlan:
    limits = {
        "max_msgs_per_subject": settings.tickets_per_subject,
        "max_bytes": settings.tickets_max_bytes,
        # A schedule consumer is made later, by whoever serves its model: its ack wait travels with the stream.
        "metadata": {TICKET_ACK_WAIT_KEY: str(round(settings.ticket_ack_wait_s * 1000))},
    }
    return _work_queue(settings, subjects.TICKETS, "hr.ticket.*.*", {"allow_direct": True}, limits)


def _journal(settings: TopologySettings, partition: int) -> StreamPlan:
    name = subjects.journal_stream(partition)
    shape = {"retention": "limits", "discard": "new"}
    return _stream(settings, name, [subjects.journal(partition)], shape, {"max_bytes": settings.journal_max_bytes})


def _results(settings: TopologySettings, partition: int) -> StreamPlan:
    limits = {
        "max_age": nanoseconds(settings.results_max_age_s),
        "max_bytes": settings.results_max_bytes,
        "duplicate_window": nanoseconds(settings.results_max_age_s),
    }
    shape = {"retention": "limits", "discard": "old", "allow_direct": True}
    name = subjects.results_stream(partition)
    guards = {"consumer_limits": {"inactive_threshold": nanoseconds(REPLAY_UNUSED_S)}}
    plan = _stream(settings, name, [subjects.result(partition, "*", "*", "*")], shape, limits)
    return replace(plan, guards=guards)


def _dead(settings: TopologySettings) -> StreamPlan:
    limits = {"max_age": nanoseconds(settings.dead_max_age_s), "max_bytes": settings.dead_max_bytes}
    return _stream(settings, subjects.DEAD, ["hr.dead.*"], {"retention": "limits", "discard": "old"}, limits)


def _buckets(settings: TopologySettings) -> list[StreamPlan]:
    cancelled = {
        "max_bytes": settings.cancelled_max_bytes,
        # The longest deadline is half of that: a cancel outlives every request it may be meant for.
        "max_age": nanoseconds(settings.results_max_age_s),
    }
    guards: Json = {"allow_rollup_hdrs": False, "max_msg_size": CANCEL_BYTES}
    responses = {
        "max_bytes": settings.responses_max_bytes,
        "max_msg_size": settings.response_max_bytes,
        "max_age": nanoseconds(settings.results_max_age_s),
    }
    return [
        _bucket(settings, subjects.MODELS_BUCKET, "new", {"max_bytes": settings.models_max_bytes}),
        _bucket(settings, subjects.PARTITIONS_BUCKET, "new", {"max_bytes": 4 * MIB}),
        # The newest cancels are those that still save work. Tenants write here: none may roll up what others wrote.
        _bucket(settings, subjects.CANCELLED_BUCKET, "old", cancelled, guards),
        # Likewise: who asks again does so soon. One tenant can push out others' either way: with `new` it would keep
        # them from being served at all, and for as long as records live. What is pushed out costs its owner only the
        # way back to an answer: no id ever leads to another request's. A record's own limit makes it slow.
        _bucket(settings, subjects.RESPONSES_BUCKET, "old", responses),
        _object_store(settings),
    ]


def _bucket(
    settings: TopologySettings, bucket: str, discard: str, limits: Json, guards: Json | None = None
) -> StreamPlan:
    """A key-value bucket, as ADR-8 of NATS describes its stream; `guards` may say otherwise."""
    shape = {
        "retention": "limits",
        "discard": discard,
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
    }
    guards = guards or {}
    shape = {name: value for name, value in shape.items() if name not in guards}
    return replace(_stream(settings, f"KV_{bucket}", [f"$KV.{bucket}.>"], shape, limits), guards=guards)


def _object_store(settings: TopologySettings) -> StreamPlan:
    """An object store, as ADR-20 of NATS describes its stream."""
    store = subjects.ARTIFACTS_STORE
    shape = {"retention": "limits", "discard": "new", "allow_rollup_hdrs": True, "allow_direct": True}
    limits = {"max_bytes": settings.artifacts_max_bytes}
    return _stream(settings, f"OBJ_{store}", [f"$O.{store}.C.>", f"$O.{store}.M.>"], shape, limits)
