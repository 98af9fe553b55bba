"""The schedule stage: tickets in, opens into the journals, grants to workers."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

import structlog

from broker.cancels import Cancels
from broker.connection import Inbound
from broker.journal import JournalWriter
from broker.publisher import Publisher
from broker.registry import Registry
from broker.subjects import worker as worker_subject
from schemas.codec import WireError, decode
from schemas.control import Cancel, WorkerStatus
from schemas.journal import OpenReply
from schemas.model import ModelCard
from stages.lifecycle import StageContext
from stages.schedule.backlog_reports import BacklogReports
from stages.schedule.cached_blocks import CachedBlocks
from stages.schedule.grants import Granter
from stages.schedule.journal_lane import JournalLane
from stages.schedule.kv_view import KvView
from stages.schedule.model_loop import ModelLoop, Shared, Spawn
from stages.schedule.pauses import Pauses
from stages.schedule.settings import ScheduleSettings

log = structlog.get_logger()

LOOK_AROUND_S = 0.25


async def run(context: StageContext, settings: ScheduleSettings) -> None:
    """Schedules until `context.stopping`, then drains. Raises what ends the process."""
    try:
        async with asyncio.TaskGroup() as tasks:
            await _live(ScheduleStage(context, settings, tasks.create_task), context)
    except ExceptionGroup as group:
        raise group.exceptions[0] from group  # the first to fail, the others were cancelled for it


async def _live(stage: "ScheduleStage", context: StageContext) -> None:
    await stage.start()
    context.set_ready(True)
    await context.stopping.wait()
    context.set_ready(False)
    await stage.stop()


class ScheduleStage:
    """What comes from outside, handed to the loop of the model it is about."""

    def __init__(self, context: StageContext, settings: ScheduleSettings, spawn: Spawn) -> None:
        connection = context.connection
        journal = JournalWriter(connection)
        self._context = context
        self._loops: dict[str, ModelLoop] = {}
        self._cancels = Cancels(connection)
        self._pauses = Pauses(connection, context.topology.ticket_ack_wait_s, _now())
        self._reports = BacklogReports(connection, context.instance, spawn)
        self._kv = KvView(connection, context.instance, self._cached, spawn)
        self._shared = Shared(
            connection=connection,
            topology=context.topology,
            settings=settings,
            telemetry=context.telemetry,
            publisher=Publisher(connection),
            lanes=[JournalLane(journal, number, context.instance) for number in range(context.topology.partitions)],
            granter=Granter(connection, context.instance, settings.grant_timeout_s),
            reports=self._reports,
            inbox=connection.new_inbox(),
            cancelled=self._cancels,
            spawn=spawn,
            look=self._look,
            may_pull=lambda: self._pauses.may_pull(_now()),
            may_judge=lambda: self._pauses.may_judge(_now()),
            undisturbed_since=lambda: self._pauses.undisturbed_since,
        )

    async def start(self) -> None:
        """Subscribes, proves it, and begins with every model that there is."""
        connection = self._shared.connection
        self._subscriptions = [
            await connection.subscribe(f"{self._shared.inbox}.>", self._on_answer),
            await connection.subscribe(worker_subject("*", "*"), self._on_heartbeat),
        ]
        await self._kv.start()
        await self._reports.start()
        await connection.prove_subscriptions()
        await self._cancels.start(self._on_cancel)
        self._watch = await Registry(connection).watch(self._on_model)
        self._looking = self._shared.spawn(self._look_around_for_ever())
        self._show_gauges()

    async def stop(self) -> None:
        """Clean: nothing is pulled or granted any more, what is held goes to others at once."""
        self._looking.cancel()
        await self._watch.close()
        await self._cancels.stop()
        patience_s = min(self._context.grace_s / 2, 10.0)
        await asyncio.gather(*(loop.drain(patience_s) for loop in self._loops.values()))
        for one in (*self._subscriptions, self._kv, self._reports):
            await one.close()

    async def _on_model(self, card: ModelCard) -> None:
        """A new model, or another card of one that is scheduled."""
        loop = self._loops.get(card.slug)
        if loop is not None:
            loop.cached.use_blocks_of(card.block_size)
            return
        loop = self._loops[card.slug] = ModelLoop(self._shared, card.slug)
        loop.cached.use_blocks_of(card.block_size)
        await loop.start()
        log.info("schedule.model", model=card.slug)

    def _cached(self, model: str) -> CachedBlocks | None:
        loop = self._loops.get(model)
        return loop.cached if loop is not None else None

    async def _on_answer(self, message: Inbound) -> None:
        """The subject is `<inbox>.<model>.<number>`."""
        loop = self._loops.get(message.subject.split(".")[-2])
        if loop is not None:
            loop.answered(message.subject, decode(OpenReply, message.data))

    async def _on_heartbeat(self, message: Inbound) -> None:
        try:
            status = decode(WorkerStatus, message.data)
        except WireError as error:
            log.warning("schedule.heartbeat_unreadable", subject=message.subject, error=str(error))
            return
        loop = self._loops.get(status.model)
        if loop is not None:
            loop.heard(status)
            self._kv.beat(status)

    async def _on_cancel(self, key: str, _: Cancel) -> None:
        for loop in self._loops.values():
            loop.cancel(key)

    def _look(self) -> None:
        if self._pauses.look(_now()):
            for loop in self._loops.values():
                loop.forget()

    async def _look_around_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AROUND_S)
            self._look()
            for loop in list(self._loops.values()):
                loop.look_around()

    def _show_gauges(self) -> None:
        telemetry = self._shared.telemetry
        for show, readings in ((telemetry.gauge, GAUGES), (telemetry.counted, COUNTS)):
            for name, text, count in readings:
                show(name, text, lambda count=count: self._read(count))

    def _read(self, count: Callable[[ModelLoop], float]) -> Iterable[tuple[float, dict[str, str]]]:
        return [(count(loop), {"model": model}) for model, loop in list(self._loops.items())]


Reading = tuple[str, str, Callable[[ModelLoop], float]]
"""By model: name, meaning, and how it is read, in another thread."""

GAUGES: Sequence[Reading] = (
    ("schedule_window", "Tickets held, not granted", lambda loop: len(loop.scheduler.window)),
    ("schedule_granted", "Tickets with workers", lambda loop: len(loop.scheduler.granted)),
    ("workers", "Workers heard of", lambda loop: len(loop.scheduler.workers)),
    ("workers_ready", "Workers that take tickets", lambda loop: loop.scheduler.workers.ready),
    ("backlog_tokens", "Tokens of tickets that wait for a worker", lambda loop: loop.backlog.latest.tokens),
    ("backlog_seconds", "What a new ticket will wait, -1: unknown", lambda loop: loop.backlog.latest.seconds),
)

COUNTS: Sequence[Reading] = (
    ("workers_lost", "Workers that fell silent unasked", lambda loop: loop.scheduler.workers.lost),
    ("redelivered", "Tickets that came again to be scheduled", lambda loop: loop.redelivered),
    ("dead_letters", "Messages that nobody can answer, put into DEAD", lambda loop: loop.buried),
)


def _now() -> float:
    return time.monotonic()
