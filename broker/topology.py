"""Creates Headrace's streams, or verifies that they are as they have to be. Nothing that exists is changed silently."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog

from broker import subjects
from broker.asking import again
from broker.connection import BrokerError, Connection, NotPermitted, Unavailable
from broker.depths import Depths, depths
from broker.differences import Difference, TopologyMismatch, differences_in, raise_if, stream_differences
from broker.jetstream_api import (
    CONSUMER_EXISTS_DIFFERENTLY,
    CONSUMER_NOT_FOUND,
    NO_STORAGE,
    STREAM_EXISTS_DIFFERENTLY,
    STREAM_NOT_FOUND,
    ApiError,
    Json,
    call,
    list_all,
)
from broker.layout import (
    FORMAT,
    FORMAT_KEY,
    PARTITIONS_KEY,
    TICKET_ACK_WAIT_KEY,
    ConsumerPlan,
    StreamPlan,
    TopologySettings,
    preprocess_consumer,
    schedule_consumer,
    stream_plans,
)

__all__ = [
    "FORMAT",
    "Depths",
    "Difference",
    "Topology",
    "TopologyMismatch",
    "TopologySettings",
    "consumer_exists",
    "count_partitions",
    "depths",
    "ensure_schedule_consumer",
    "initialise",
    "verify",
]

log = structlog.get_logger()

T = TypeVar("T")

SLOW_S = 30.0
"""Making a stream may take a cluster that long, when it elects a leader first."""

TRY_S = 5.0
"""Nobody answers what was asked while there was no leader: it is asked again."""

LOOK_S = 2.0
"""Likewise for what is only looked up."""


@dataclass(frozen=True)
class Topology:
    """What a process has to know of the streams, as it stands in them. Times in s, sizes in bytes."""

    partitions: int
    request_ack_wait_s: float
    ticket_ack_wait_s: float
    results_max_age_s: float
    results_max_bytes: int
    max_request_bytes: int
    requests_per_subject: int
    tickets_per_subject: int


async def initialise(connection: Connection, settings: TopologySettings) -> Topology:
    """Creates what is missing. Raises `TopologyMismatch` for what is there and differs; nothing is created then.

    What an older program made without its guards gets them. Safe to run by several processes at once. Raises
    `Unavailable`, and `ApiError` where the broker has no room.
    """
    plans = stream_plans(settings)
    existing = await again(lambda: stream_configs(connection), SLOW_S)
    raise_if(stream_differences([replace(plan, guards={}) for plan in plans], existing, missing_counts=False))
    for plan in plans:
        if plan.name not in existing:
            await _create_stream(connection, plan)
        elif differences_in(plan.name, plan.guards, existing[plan.name]):
            await _guard_stream(connection, plan, existing[plan.name])
    consumer = preprocess_consumer(settings.request_ack_wait_s)  # of REQUESTS, the last one
    await again(lambda: _ensure_consumer(connection, consumer), SLOW_S)
    raise_if(stream_differences(plans, await again(lambda: stream_configs(connection), SLOW_S)))
    return await again(lambda: _read(connection), SLOW_S)


async def verify(connection: Connection, patience_s: float = 30.0) -> Topology:
    """The topology that is there, awaited for up to `patience_s`. Limits may be any; the shape has to be this format's.

    Raises `TopologyMismatch`; `Unavailable` where there is none (`headrace init` makes one).
    """
    return await _patiently(lambda: _verify_now(connection), patience_s)


async def _patiently(read: Callable[[], Awaitable[T]], patience_s: float) -> T:
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            return await read()
        except (Unavailable, ApiError) as error:
            if asyncio.get_running_loop().time() >= deadline:
                if isinstance(error, NotPermitted):
                    raise
                raise Unavailable(_why_not(error)) from error
            log.debug("topology.waiting", reason=str(error))
            await asyncio.sleep(min(0.2, patience_s))


def _why_not(error: BrokerError) -> str:
    if isinstance(error, ApiError) and error.number == STREAM_NOT_FOUND:
        return "no streams of Headrace, `headrace init` makes them"
    return f"Headrace's streams cannot be read; the broker needs JetStream, and this user the permission ({error})"


async def count_partitions(connection: Connection, patience_s: float = 30.0) -> int:
    """P, awaited for up to `patience_s`; all that a client has to know, and may be permitted to ask, of the streams.

    Raises `TopologyMismatch`; `Unavailable` where there are none.
    """
    return await _patiently(lambda: _partitions(connection), patience_s)


async def existing_partitions(connection: Connection) -> int | None:
    """P of the streams that are there, also of those that are not all made yet; None where there are none.

    Raises `TopologyMismatch`, `Unavailable`, `ApiError`.
    """
    streams = await again(lambda: stream_configs(connection), SLOW_S)
    first = streams.get(subjects.journal_stream(0))
    return None if first is None else _partitions_in(first)


async def ensure_schedule_consumer(connection: Connection, model: str) -> None:
    """The durable consumer that all schedulers of `model` share: made if it is missing, else verified."""
    tickets = await _stream_config(connection, subjects.TICKETS)
    await _ensure_consumer(connection, schedule_consumer(model, _ticket_ack_wait_s(tickets)))


async def consumer_exists(connection: Connection, stream: str, consumer: str) -> bool:
    """Whether the stream has that consumer. Raises `Unavailable`, `ApiError` (no such stream)."""
    try:
        await _consumer_config(connection, stream, consumer)
    except ApiError as error:
        if error.number == CONSUMER_NOT_FOUND:
            return False
        raise
    return True


async def _verify_now(connection: Connection) -> Topology:
    topology = await _read(connection)
    plans = stream_plans(TopologySettings(partitions=topology.partitions))
    shapes = [StreamPlan(plan.name, plan.shape) for plan in plans]
    raise_if(stream_differences(shapes, await stream_configs(connection)))
    plan = preprocess_consumer(topology.request_ack_wait_s)
    found = await _consumer_config(connection, plan.stream, plan.name)
    raise_if(differences_in(f"{plan.stream}/{plan.name}", plan.shape, found))
    return topology


async def _partitions(connection: Connection) -> int:
    return _partitions_in(await _stream_config(connection, subjects.REQUESTS))


def _partitions_in(stream: Json) -> int:
    metadata = _metadata(stream)
    if metadata.get(FORMAT_KEY) != str(FORMAT):
        raise TopologyMismatch([Difference(stream["name"], FORMAT_KEY, str(FORMAT), metadata.get(FORMAT_KEY))])
    return int(metadata[PARTITIONS_KEY])


async def _read(connection: Connection) -> Topology:
    requests = await _stream_config(connection, subjects.REQUESTS)
    tickets = await _stream_config(connection, subjects.TICKETS)
    results = await _stream_config(connection, subjects.results_stream(0))
    consumer = await _consumer_config(connection, subjects.REQUESTS, subjects.PREPROCESS_CONSUMER)
    return Topology(
        partitions=_partitions_in(requests),
        request_ack_wait_s=consumer["ack_wait"] / 1e9,
        ticket_ack_wait_s=_ticket_ack_wait_s(tickets),
        results_max_age_s=results["max_age"] / 1e9,
        results_max_bytes=results["max_bytes"],
        max_request_bytes=requests["max_msg_size"],
        requests_per_subject=requests["max_msgs_per_subject"],
        tickets_per_subject=tickets["max_msgs_per_subject"],
    )


def _ticket_ack_wait_s(tickets: Json) -> float:
    return int(_metadata(tickets).get(TICKET_ACK_WAIT_KEY, "0")) / 1000


def _metadata(stream: Json) -> dict[str, str]:
    return stream.get("metadata") or {}


async def _create_stream(connection: Connection, plan: StreamPlan) -> None:
    endpoint = f"STREAM.CREATE.{plan.name}"
    try:
        await again(lambda: call(connection, endpoint, plan.config, timeout_s=TRY_S), SLOW_S)
    except ApiError as error:
        if error.number in NO_STORAGE:
            raise BrokerError(
                f"no room for {plan.name}: give the broker more storage (max_file_store) or lower the topology's limits"
                f" (results_max_bytes, requests_max_bytes, tickets_max_bytes, artifacts_max_bytes; {error})"
            ) from error
        if error.number != STREAM_EXISTS_DIFFERENTLY:  # somebody else was faster; the last check finds differences
            raise


async def _guard_stream(connection: Connection, plan: StreamPlan, found: Json) -> None:
    log.info("topology.guarded", stream=plan.name, guards=plan.guards)
    endpoint, config = f"STREAM.UPDATE.{plan.name}", {**found, **plan.guards}
    await again(lambda: call(connection, endpoint, config, timeout_s=TRY_S), SLOW_S)


async def _ensure_consumer(connection: Connection, plan: ConsumerPlan) -> None:
    """Makes it unless it is there: JetStream's plain "create" would change an existing one for everybody.

    One that is there is only looked at: that needs no leader of the whole cluster.
    """
    try:
        found = await _consumer_config(connection, plan.stream, plan.name)
    except ApiError as error:
        if error.number != CONSUMER_NOT_FOUND:
            raise
        found = await _create_consumer(connection, plan)
    raise_if(differences_in(f"{plan.stream}/{plan.name}", {**plan.shape, **plan.limits}, found))


async def _create_consumer(connection: Connection, plan: ConsumerPlan) -> Json:
    """The configuration of the new one, or of the one that somebody else made meanwhile."""
    endpoint = f"CONSUMER.CREATE.{plan.stream}.{plan.name}.{plan.shape['filter_subject']}"
    body = {"stream_name": plan.stream, "config": plan.config, "action": "create"}
    try:
        return (await call(connection, endpoint, body, timeout_s=TRY_S))["config"]
    except ApiError as error:
        if error.number not in CONSUMER_EXISTS_DIFFERENTLY:
            raise
        return await _consumer_config(connection, plan.stream, plan.name)


async def _consumer_config(connection: Connection, stream: str, consumer: str) -> Json:
    return (await call(connection, f"CONSUMER.INFO.{stream}.{consumer}", timeout_s=LOOK_S))["config"]


async def _stream_config(connection: Connection, name: str) -> Json:
    return (await call(connection, f"STREAM.INFO.{name}", timeout_s=LOOK_S))["config"]


async def stream_configs(connection: Connection) -> dict[str, Json]:
    """The configuration of every stream, by name."""
    return {info["config"]["name"]: info["config"] for info in await list_all(connection, "STREAM.LIST", "streams")}
