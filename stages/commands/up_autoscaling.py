"""`headrace up --autoscale inference=0..4`: the same as `headrace autoscale` beside it, in one process."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

import structlog

from broker.connection import BrokerError, BrokerOptions, Connection
from stages.autoscaling.autoscaler import Autoscaler
from stages.autoscaling.chosen import rules_of
from stages.autoscaling.ranges import Range, read_options
from stages.autoscaling.settings import AutoscaleSettings
from stages.autoscaling.targets.up import OwnTarget
from stages.autoscaling.watching import served_models, tell_nobody, watch
from stages.commands.plan import UpOptions, chosen_of, patterns
from stages.observing.pipeline import Observer
from stages.replicas import Replicas
from stages.sections import in_section
from stages.settings import Problem, SettingsError, load_settings

log = structlog.get_logger()

PATIENCE_S = 60.0
FINISH_S = 1.0


@dataclass(frozen=True)
class Autoscaling:
    """What to keep to what; nothing where it was not asked for."""

    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])
    settings: AutoscaleSettings = field(default_factory=AutoscaleSettings)


def autoscaling(options: UpOptions, environ: Mapping[str, str]) -> Autoscaling:
    """What was typed. Raises `SettingsError`."""
    chosen = chosen_of("autoscale", options)
    if "stages" in chosen:
        raise SettingsError([Problem("--set autoscale.stages", "", "`headrace up` is told by --autoscale")])
    try:  # what is typed has to be right, even where it counts for nothing
        settings = load_settings(AutoscaleSettings, environ if options.autoscale else {}, chosen)
    except SettingsError as error:
        raise SettingsError(in_section(AutoscaleSettings, error.problems)) from error
    if not options.autoscale:
        return Autoscaling()
    ranges = read_options(options.autoscale, "--autoscale")
    groups = list(patterns(options, environ, ()))
    known = {*groups, *(group.partition(":")[0] for group in groups)}
    if unknown := [group for group in ranges if group not in known]:
        raise SettingsError([Problem("--autoscale", unknown[0], f"there is none here, but {', '.join(groups)}")])
    return Autoscaling(ranges, settings)


@contextlib.asynccontextmanager
async def autoscaled(wanted: Autoscaling, replicas: Replicas, broker: BrokerOptions) -> AsyncGenerator[None]:
    """Changes `replicas` as long as it lasts."""
    if not wanted.ranges:
        yield
        return
    task = asyncio.create_task(_keep(wanted, replicas, broker))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _keep(wanted: Autoscaling, replicas: Replicas, broker: BrokerOptions) -> None:
    """Without it the pipeline runs on as it is."""
    while True:
        try:
            connection = await Connection.open(broker, PATIENCE_S)
            try:
                await _watch(wanted, replicas, connection)
            finally:
                await connection.close()
        except BrokerError as error:
            log.warning("autoscale.blind", error=str(error))
        except Exception:
            log.exception("autoscale.failed")
        await asyncio.sleep(wanted.settings.every_s)


async def _watch(wanted: Autoscaling, replicas: Replicas, connection: Connection) -> None:
    observer = Observer(connection, partly=True)
    await observer.start(PATIENCE_S)
    rules = {group: rules_of(group, each, wanted.settings) for group, each in wanted.ranges.items()}
    every_s = wanted.settings.every_s
    autoscaler = Autoscaler(OwnTarget(replicas), rules, lambda: served_models(connection), every_s=every_s)
    try:
        await watch(observer, autoscaler, every_s, tell_nobody)
    finally:
        await autoscaler.finish(FINISH_S)
