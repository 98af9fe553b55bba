"""Tells on `hr.backlog.<model>` what waits, and hears it from the other schedulers of the same models."""

import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

from broker import subjects
from broker.connection import BrokerError, Connection, Inbound
from broker.undelivered import undelivered
from schemas.backlog import Backlog
from schemas.codec import WireError, decode, encode
from stages.schedule.backlog import BacklogMeter, HeldBack
from stages.schedule.dispatch import Work
from stages.schedule.held import Phase
from stages.schedule.window import Window

EVERY_S = 0.5
AT_ONCE_S = 0.05
"""So far apart are even messages about a backlog that begins and ends all the time."""

SILENT_S = 2.0

log = structlog.get_logger()


class BacklogReports:
    """One for all models of this process."""

    def __init__(
        self, connection: Connection, instance: str, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self.instance = instance
        self._connection = connection
        self._spawn = spawn
        self._rates: dict[str, dict[str, tuple[float, float]]] = {}

    async def start(self) -> None:
        """Subscribes; whoever calls proves it."""
        self._subscription = await self._connection.listen(subjects.backlog("*"), self._on_backlog)

    async def close(self) -> None:
        await self._subscription.close()

    def tell(self, backlog: Backlog) -> None:
        self._spawn(self._publish(backlog))

    def others(self, model: str) -> float:
        """The rate of all other schedulers of this model that were heard lately (tokens/s)."""
        heard = self._rates.setdefault(model, {})
        now = time.monotonic()
        for scheduler in [name for name, (_, at) in heard.items() if now - at > SILENT_S]:
            del heard[scheduler]
        return sum(rate for rate, _ in heard.values())

    def count_pending(self, model: str, counted: Callable[[int], None]) -> None:
        """Has the tickets counted that nobody has pulled."""
        self._spawn(self._count_pending(model, counted))

    async def _count_pending(self, model: str, counted: Callable[[int], None]) -> None:
        try:
            counted(await undelivered(self._connection, subjects.TICKETS, subjects.schedule_consumer(model)))
        except BrokerError as error:  # counted again before the next message
            log.debug("schedule.pending_not_counted", model=model, error=str(error))

    async def _publish(self, backlog: Backlog) -> None:
        try:
            await self._connection.publish(subjects.backlog(backlog.model), encode(backlog))
        except BrokerError as error:  # the next one makes up for it
            log.debug("schedule.backlog_not_told", model=backlog.model, error=str(error))

    def _on_backlog(self, message: Inbound) -> None:
        try:
            backlog = decode(Backlog, message.data)
        except WireError as error:
            log.warning("schedule.backlog_unreadable", subject=message.subject, error=str(error))
            return
        of_model = self._rates.get(backlog.model)  # models that nobody here asks for are not kept
        if of_model is not None and backlog.scheduler != self.instance:
            of_model[backlog.scheduler] = backlog.rate, time.monotonic()


class Reports(Protocol):
    """Where a model's backlog is told, and what others tell."""

    @property
    def instance(self) -> str: ...

    def tell(self, backlog: Backlog) -> None: ...

    def others(self, model: str) -> float: ...

    def count_pending(self, model: str, counted: Callable[[int], None]) -> None: ...


class ModelBacklog:
    """What waits for one model. `latest` is what was told last; `slots` tickets fit into the window.

    Look at it after every tick (`ticked`) and several times a second (`looked`).
    """

    def __init__(self, model: str, window: Window, reports: Reports, *, slots: int, reserve: int) -> None:
        self.latest = Backlog(scheduler=reports.instance, model=model)
        self.meter = BacklogMeter()
        self._window = window
        self._reports = reports
        self._slots = slots
        self._reserve = reserve
        self._pending = 0
        self._pulled = False
        self._told_at = float("-inf")
        self._changed = False
        self._had_worker = False

    def pulled(self, pending: int) -> None:
        """How many tickets nobody has pulled, by the delivery that came last."""
        self._pending, self._pulled = pending, True

    def ticked(self, work: Work, workers: int, now: float) -> None:
        """A tick has decided this, and what is left has to wait."""
        self._look(self._window.count(Phase.READY), granted_tokens(work), workers, now)

    def looked(self, workers: int, now: float) -> None:
        """Between ticks: nothing is granted, and what has come since the last one does not wait yet."""
        self._look(min(self.meter.waiting, self._window.count(Phase.READY)), 0, workers, now)

    def _look(self, waiting: int, granted: int, workers: int, now: float) -> None:
        self._changed |= self.meter.looked(now, waiting=waiting, granted=granted, workers=workers)
        self._had_worker |= workers > 0
        of_use = self._had_worker or len(self._window) > 0
        if of_use and now - self._told_at >= (AT_ONCE_S if self._changed else EVERY_S):
            self._tell(now)

    def _tell(self, now: float) -> None:
        self._told_at, self._changed = now, False
        held = HeldBack()
        if self.meter.waiting:
            held = HeldBack.of(self._window.in_phase(Phase.READY), self._reserve)
        pending = self._known_pending()
        self.latest = Backlog(
            scheduler=self.latest.scheduler,
            model=self.latest.model,
            tickets=held.tickets,
            tokens=held.tokens,
            pending=pending,
            rate=self.meter.rate,
            seconds=self.meter.seconds(held, pending, self._reports.others(self.latest.model)),
            tenants=held.tenants,
        )
        self._reports.tell(self.latest)

    def _known_pending(self) -> int:
        """With a free slot whatever lies in TICKETS would have been pulled; without one, nothing may come for long."""
        if len(self._window) < self._slots:
            return 0
        if not self._pulled:
            self._reports.count_pending(self.latest.model, self.pulled)
        self._pulled = False
        return self._pending


def granted_tokens(work: Work) -> int:
    """Of the placements of one tick; one that its worker refuses counts again when it is placed again."""
    placed = sum(one.tokens for one in work.opened)
    return placed + sum(one.tokens for entries in work.entries.values() for one in entries.fresh)
