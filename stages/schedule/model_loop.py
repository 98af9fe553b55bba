"""One model's loop: pulls its tickets, ticks when something has changed, and hands back what it holds at the end."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Container, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog

from broker.connection import Connection
from broker.publisher import Publisher
from broker.subjects import TICKETS, schedule_consumer
from broker.topology import Topology, ensure_schedule_consumer
from broker.work_queue import Delivery, WorkQueue, nak
from schemas.codec import WireError
from schemas.control import WorkerStatus
from schemas.journal import OpenReply
from stages.schedule.backlog_reports import ModelBacklog, Reports
from stages.schedule.cached_blocks import CachedBlocks
from stages.schedule.dispatch import Dispatcher
from stages.schedule.feed import Feed
from stages.schedule.grants import Granter
from stages.schedule.journal_lane import JournalLane
from stages.schedule.scheduler import Scheduler
from stages.schedule.settings import ScheduleSettings
from stages.schedule.taking_back import TakingBack
from stages.schedule.unreadable import bury
from stages.telemetry import Telemetry

log = structlog.get_logger()

LOOK_AGAIN_S = 0.01
"""What waits although a slot is free waits for something that nobody announces: computed prompts, a better worker."""

TICK_FAILED_PAUSE_S = 1.0

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@dataclass(frozen=True)
class Shared:
    """What the loops of all models have in common.

    `may_pull` and `may_judge` say whether a pause or a lost connection is far enough behind; `look` has to be called
    before anything is decided, it makes every loop forget what a long pause has taken from it. `undisturbed_since` is
    when the last such thing ended.
    """

    connection: Connection
    topology: Topology
    settings: ScheduleSettings
    telemetry: Telemetry
    publisher: Publisher
    lanes: list[JournalLane]
    granter: Granter
    reports: Reports
    inbox: str
    cancelled: Container[str]
    spawn: Spawn
    look: Callable[[], None]
    may_pull: Callable[[], bool]
    may_judge: Callable[[], bool]
    undisturbed_since: Callable[[], float]


class ModelLoop:
    """Everything that happens to the tickets of one model."""

    def __init__(self, shared: Shared, model: str) -> None:
        self._shared = shared
        self._model = model
        self.redelivered = 0
        self.buried = 0
        self._wake = asyncio.Event()
        self._underway: set[asyncio.Task[None]] = set()
        self._feed = Feed(self._make_queue, shared.look, shared.spawn)
        self.cached = CachedBlocks()
        self.scheduler = Scheduler(
            model,
            shared.settings,
            lanes=shared.lanes,
            queue=self._feed,
            inbox=f"{shared.inbox}.{model}",
            cancelled=shared.cancelled,
            cached=self.cached,
        )
        self.backlog = ModelBacklog(
            model,
            self.scheduler.window,
            shared.reports,
            slots=shared.settings.window,
            reserve=shared.settings.output_reserve,
        )
        self._dispatcher = Dispatcher(
            model=model,
            window=self.scheduler.window,
            granted=self.scheduler.granted,
            lanes=shared.lanes,
            granter=shared.granter,
            queue=self._feed,
            telemetry=shared.telemetry,
            spawn=self._spawn,
            wake=self._wake.set,
            open_answer_s=shared.settings.open_answer_s,
            clock=_now,
        )
        self._taking_back = TakingBack(shared.lanes, lambda ack: nak(shared.connection, ack))

    async def start(self) -> None:
        """Begins to pull and to tick."""
        await self._feed.start()
        self._ticking = self._shared.spawn(self._tick_for_ever())
        self._pulling = self._shared.spawn(self._pull())

    def heard(self, status: WorkerStatus) -> None:
        if acquitted := self.scheduler.acquitted(status):
            self._spawn(self._taking_back.acquit(acquitted))
        if self.scheduler.heard(status, _now()) and len(self.scheduler.window):
            self._wake.set()

    def answered(self, subject: str, reply: OpenReply) -> None:
        self.scheduler.answered(subject, reply)
        self._wake.set()

    def cancel(self, key: str) -> None:
        if self.scheduler.cancel(key):
            self._wake.set()

    def forget(self) -> None:
        log.warning("schedule.forgets", model=self._model, held=len(self.scheduler.window))
        self.scheduler.forget()
        self._feed.forget()

    def look_around(self) -> None:
        """Several times a second: silent workers, and whatever a clock may have made due."""
        if self._shared.may_judge():
            silences = self.scheduler.take_back_silent(_now(), self._shared.undisturbed_since())
            for silence in silences:
                self.cached.gone(silence.worker)
            if silences:
                self._spawn(self._taking_back.carry_out(silences))
        # Cut off, nobody can be granted anything: that time says nothing of a rate.
        self.backlog.looked(len(self.scheduler.workers) if self._shared.connection.connected else 0, _now())
        if len(self.scheduler.window):
            self._wake.set()

    async def drain(self, patience_s: float) -> None:
        """Stops pulling, lets what is under way finish, and hands the rest to other schedulers."""
        self._ticking.cancel()
        await self._feed.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self._underway:
                    await asyncio.wait(list(self._underway))
        for task in self._underway:
            task.cancel()
        self.scheduler.window.clear()
        handed_back = await self._feed.hand_back()
        log.info("schedule.drained", model=self._model, handed_back=handed_back, granted=len(self.scheduler.granted))

    def _make_queue(self) -> WorkQueue:
        return WorkQueue(
            self._shared.connection,
            TICKETS,
            schedule_consumer(self._model),
            slots=self._shared.settings.window,
            ack_wait_s=self._shared.topology.ticket_ack_wait_s,
            ensure=self._ensure,
        )

    async def _ensure(self) -> None:
        """The consumer, and after a reconnect the moment from which one may pull."""
        self._shared.look()
        while not self._shared.may_pull():
            await asyncio.sleep(0.1)
            self._shared.look()
        await ensure_schedule_consumer(self._shared.connection, self._model)

    async def _pull(self) -> None:
        async for batch in self._feed.batches():
            now = _now()
            self.backlog.pulled(batch[-1].pending)
            for delivery in batch:
                self._take_in(delivery, now)
            self._wake.set()

    async def _bury(self, delivery: Delivery, reason: str) -> None:
        if await bury(self._shared.publisher, self._feed, self._model, delivery, reason):
            self.buried += 1

    def _take_in(self, delivery: Delivery, now: float) -> None:
        self.redelivered += delivery.deliveries > 1
        try:
            self.scheduler.pulled(delivery, now)
        except WireError as error:
            self._spawn(self._bury(delivery, str(error)))

    async def _tick_for_ever(self) -> None:
        """Event driven: an idle model costs nothing, and a burst becomes one grant a worker."""
        while True:
            pause_s = self._shared.settings.tick_ms / 1000
            await self._wake.wait()
            await asyncio.sleep(0)  # whatever else this turn of the loop brings goes along
            self._wake.clear()
            begin = _now()
            try:
                self._tick()
            except Exception:  # the next tick may be without what this one stumbled over
                log.exception("schedule.tick_failed", model=self._model)
                pause_s = TICK_FAILED_PAUSE_S
            # A long backlog leaves the loop three quarters of its time for everything else.
            await asyncio.sleep(max(pause_s, 3 * (_now() - begin)))

    def _tick(self) -> None:
        self._shared.look()
        if not self._shared.connection.connected:
            return  # what is written now would be sent late, and mean something else by then
        now = _now()
        work = self.scheduler.tick(now)
        self.backlog.ticked(work, len(self.scheduler.workers), now)
        if work:
            self._spawn(self._dispatcher.carry_out(work))
        if self.scheduler.looks_again:
            asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._wake.set)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._shared.spawn(work)
        self._underway.add(task)
        task.add_done_callback(self._underway.discard)


def _now() -> float:
    return time.monotonic()  # uvloop's own time has a resolution of a millisecond
