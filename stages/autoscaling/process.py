"""The process of `headrace autoscale`: like a stage's, with health port, metrics and signals."""

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from stages.autoscaling.autoscaler import Autoscaler
from stages.autoscaling.rules import Rules
from stages.autoscaling.settings import AutoscaleSettings
from stages.autoscaling.targets.target import Target, TargetError
from stages.autoscaling.view import print_round
from stages.autoscaling.watching import served_models, tell_nobody, watch
from stages.lifecycle import StageContext, StageProcess
from stages.observing.pipeline import Observer
from stages.sections import StageSettings
from stages.telemetry import Readings

log = structlog.get_logger()

PATIENCE_S = 3.0
NAME = "autoscale"


@dataclass(frozen=True)
class Task:
    """What one `headrace autoscale` does. `carry_out` False only tells; `once` is one round."""

    target: Target
    rules: Mapping[str, Rules]
    carry_out: bool = True
    once: bool = False


async def live(task: Task, settings: StageSettings) -> int:
    """Until a signal, or the end of `once`; replicas stay as they are. The exit status."""
    instance = f"{NAME}-{secrets.token_hex(4)}"
    return await StageProcess(NAME, instance, settings, partial(_run, task), time.monotonic()).live()


async def _run(task: Task, context: StageContext, settings: AutoscaleSettings) -> None:
    connection = context.connection
    observer = Observer(connection, partly=True)
    await observer.start(PATIENCE_S)
    autoscaler = Autoscaler(
        task.target,
        task.rules,
        lambda: served_models(connection),
        carry_out=task.carry_out,
        every_s=settings.every_s,
    )
    _show(autoscaler, context)
    context.set_ready(True)
    tell = print_round if task.once or not task.carry_out else tell_nobody
    watching = asyncio.create_task(watch(observer, autoscaler, settings.every_s, tell, once=task.once))
    stop = asyncio.create_task(context.stopping.wait())
    try:
        await asyncio.wait({watching, stop}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done() and not _is_blind(watching):
            context.stopping.set()
    finally:
        for one in (watching, stop):
            one.cancel()
        await asyncio.gather(watching, stop, return_exceptions=True)
        await autoscaler.finish(context.grace_s)
        await observer.close()


def _is_blind(watching: "asyncio.Task[None]") -> bool:
    """Whether the one look that was asked for could not be. Raises `BrokerError`."""
    try:
        watching.result()
    except TargetError as error:
        log.error("autoscale.blind", error=str(error))  # noqa: TRY400 — no bug of ours
        return True
    return False


def _show(autoscaler: Autoscaler, context: StageContext) -> None:
    def readings() -> Readings:
        parts = [(group.partition(":"), count) for group, count in list(autoscaler.wanted.items())]
        return [(count, {"stage": stage, "model": model}) for (stage, _, model), count in parts]

    context.telemetry.gauge("autoscale_replicas", "Replicas that the autoscaler wants", readings)
