"""Changing the limits of streams that exist, on request: what `initialise` never does by itself."""

from broker import subjects
from broker.connection import Connection
from broker.differences import Difference, differences_in, raise_if, stream_differences
from broker.jetstream_api import Json, call, list_all
from broker.layout import (
    ConsumerPlan,
    StreamPlan,
    TopologySettings,
    preprocess_consumer,
    schedule_consumer,
    stream_plans,
)
from broker.topology import SLOW_S, stream_configs


async def change_limits(connection: Connection, settings: TopologySettings) -> list[Difference]:
    """Gives streams and consumers the limits of `settings`; what was changed, as it was before.

    Everything else about them has to be right already: raises `TopologyMismatch`, before anything is changed, where
    the format or the number of partitions is another one or a stream is missing. Running stages learn of new ack
    waits when they start again.
    """
    plans = stream_plans(settings)
    existing = await stream_configs(connection)
    raise_if(stream_differences([StreamPlan(plan.name, plan.shape) for plan in plans], existing))
    changed: list[Difference] = []
    for plan in plans:
        changed += await _change_stream(connection, plan, existing[plan.name])
    changed += await _change_consumer(connection, preprocess_consumer(settings.request_ack_wait_s))
    for model in await _scheduled_models(connection):
        changed += await _change_consumer(connection, schedule_consumer(model, settings.ticket_ack_wait_s))
    return changed


async def _change_stream(connection: Connection, plan: StreamPlan, found: Json) -> list[Difference]:
    differences = differences_in(plan.name, plan.config, found)
    if differences:
        await call(connection, f"STREAM.UPDATE.{plan.name}", {**found, **plan.config}, timeout_s=SLOW_S)
    return differences


async def _change_consumer(connection: Connection, plan: ConsumerPlan) -> list[Difference]:
    found = (await call(connection, f"CONSUMER.INFO.{plan.stream}.{plan.name}"))["config"]
    where = f"{plan.stream}/{plan.name}"
    raise_if(differences_in(where, plan.shape, found))
    differences = differences_in(where, plan.limits, found)
    if differences:
        endpoint = f"CONSUMER.CREATE.{plan.stream}.{plan.name}.{plan.shape['filter_subject']}"
        body = {"stream_name": plan.stream, "config": plan.config, "action": "update"}
        await call(connection, endpoint, body, timeout_s=SLOW_S)
    return differences


async def _scheduled_models(connection: Connection) -> list[str]:
    prefix = subjects.schedule_consumer("")
    consumers = await list_all(connection, f"CONSUMER.LIST.{subjects.TICKETS}", "consumers")
    return [info["name"].removeprefix(prefix) for info in consumers if info["name"].startswith(prefix)]
