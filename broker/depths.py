"""How full the streams are, and what waits for whom: what `headrace status` shows."""

from collections.abc import Collection
from dataclasses import dataclass

from broker import subjects
from broker.connection import Connection
from broker.direct_get import unix_time
from broker.jetstream_api import Json, call, list_all
from broker.leader_get import next_at_leader

WORK_QUEUES = (subjects.REQUESTS, subjects.TICKETS)


@dataclass(frozen=True)
class StreamDepth:
    """One stream. `first_sequence` is what comes next in a journal: its owner purges what it has dealt with."""

    messages: int
    bytes: int
    max_bytes: int
    first_sequence: int
    last_sequence: int


@dataclass(frozen=True)
class ConsumerDepth:
    """One durable consumer: messages not delivered yet, delivered but not settled, and pull requests that wait."""

    stream: str
    pending: int
    ack_pending: int
    redelivered: int
    waiting_pulls: int


@dataclass(frozen=True)
class Depths:
    """Streams and durable consumers by name. `unclaimed`: messages in a work queue that no consumer will ever see."""

    streams: dict[str, StreamDepth]
    consumers: dict[str, ConsumerDepth]
    unclaimed: dict[str, int]


@dataclass(frozen=True)
class Waiting:
    """What stands in one subject's queue. `oldest_s`: seconds that the first of it has been there."""

    depth: int
    oldest_s: float


async def waiting(connection: Connection, stream: str, subject: str) -> Waiting:
    """The queue of `subject` (no wildcards) in `stream`, by the broker's clock. Raises `Unavailable`, `ApiError`."""
    oldest = await next_at_leader(connection, stream, subject, 1)
    info = await call(connection, f"STREAM.INFO.{stream}", {"subjects_filter": subject})
    depths_of: dict[str, int] = info["state"].get("subjects") or {}
    depth = depths_of.get(subject, 0)
    if oldest is None or not depth:
        return Waiting(0, 0.0)
    return Waiting(depth, max(0.0, unix_time(info["ts"]) - oldest.stored_at))


async def depths(connection: Connection) -> Depths:
    """The depth of all streams of Headrace that have a leader. Raises `Unavailable`, `ApiError`."""
    streams = await stream_depths(connection)
    return depths_of(streams, await consumer_depths(connection, streams))


async def stream_depths(connection: Connection) -> dict[str, StreamDepth]:
    """The streams alone, by name. Raises `Unavailable`, `ApiError`."""
    infos = await list_all(connection, "STREAM.LIST", "streams", partly=True)
    ours = (subjects.REQUESTS, subjects.TICKETS, subjects.DEAD)
    return {
        info["config"]["name"]: _stream_depth(info)
        for info in infos
        if info["config"]["name"].startswith((*ours, "JOURNAL_", "RESULTS_", "KV_hr_", "OBJ_hr_"))
    }


async def consumer_depths(connection: Connection, streams: Collection[str]) -> dict[str, ConsumerDepth]:
    """The durable consumers of those work queues that are among `streams`. Raises `Unavailable`, `ApiError`."""
    consumers: dict[str, ConsumerDepth] = {}
    for stream in WORK_QUEUES:
        consumers |= await _consumer_depths(connection, stream) if stream in streams else {}
    return consumers


def depths_of(streams: dict[str, StreamDepth], consumers: dict[str, ConsumerDepth]) -> Depths:
    """Both, looked at one after the other."""
    unclaimed: dict[str, int] = {}
    for stream in WORK_QUEUES:
        claimed = sum(each.pending + each.ack_pending for each in consumers.values() if each.stream == stream)
        unclaimed[stream] = max(0, streams[stream].messages - claimed) if stream in streams else 0
    return Depths(streams, consumers, unclaimed)


async def _consumer_depths(connection: Connection, stream: str) -> dict[str, ConsumerDepth]:
    infos = await list_all(connection, f"CONSUMER.LIST.{stream}", "consumers", partly=True)
    return {
        info["name"]: ConsumerDepth(
            stream=stream,
            pending=info.get("num_pending", 0),
            ack_pending=info.get("num_ack_pending", 0),
            redelivered=info.get("num_redelivered", 0),
            waiting_pulls=info.get("num_waiting", 0),
        )
        for info in infos
        if info["config"].get("durable_name")
    }


def _stream_depth(info: Json) -> StreamDepth:
    state = info["state"]
    return StreamDepth(
        messages=state["messages"],
        bytes=state["bytes"],
        max_bytes=info["config"].get("max_bytes", -1),
        first_sequence=state["first_seq"],
        last_sequence=state["last_seq"],
    )
