"""Carries out what a tick has decided: entries into the journals, then grants. No tick waits for it."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from broker.connection import BrokerError
from broker.work_queue import Delivery
from schemas.faults import Fault
from stages.schedule.fairness import Tenants
from stages.schedule.granted import GrantedTickets
from stages.schedule.grants import Granter, Outcome
from stages.schedule.held import Held, Phase
from stages.schedule.journal_lane import SLOW_S, JournalLane
from stages.schedule.window import Window
from stages.schedule.workers import Room, Worker
from stages.telemetry import ATTEMPT, CHOICE, REQUEST_ID, REQUEST_MODEL, Telemetry

log = structlog.get_logger()

CANCELLED = Fault("cancelled", "the request was cancelled")
DEADLINE = Fault("deadline", "the deadline passed before a worker was free")
TOO_LARGE = Fault("too_large", "prompt and answer so far do not fit into one message to a worker")


class Tickets(Protocol):
    """The work queue, as far as a settled ticket needs it."""

    def let_go(self, delivery: Delivery) -> None: ...


@dataclass(frozen=True, slots=True)
class Assignment:
    """A ticket and the worker chosen for it, whose room is taken until the grant is settled.

    It is `tokens` long (prompt, ids so far, what is reserved for the answer); `cached` of these are expected in the KV
    cache. Its tenant has been promised them, unless the worker does not get it.
    """

    held: Held
    worker: Worker
    tokens: int
    cached: int
    tenants: Tenants

    @property
    def room(self) -> Room:
        """What it takes of the worker."""
        missing = self.held.length - self.cached
        return Room(kv_tokens=self.tokens - self.cached, prefill_tokens=missing, alone=self.held.alone)

    def place(self) -> None:
        self.held.enter(Phase.PLACED)
        self.worker.place(self.room)
        self.tenants.promise(self.held.ticket.tenant, self.held.length)

    def unplace(self) -> None:
        """Settled: if it was taken, the worker's own credits say so from now on."""
        self.worker.unplace(self.room)

    def take_back(self) -> None:
        """The worker does not get it."""
        self.unplace()
        self.tenants.promise(self.held.ticket.tenant, -self.held.length)
        self.held.put_back()


@dataclass
class Entries:
    """What one tick writes into one partition."""

    fresh: list[Assignment] = field(default_factory=list[Assignment])
    asks: list[Held] = field(default_factory=list[Held])
    ends: list[Held] = field(default_factory=list[Held])


@dataclass
class Work:
    """What one tick has decided: entries by partition, and assignments that have their open already."""

    entries: dict[int, Entries] = field(default_factory=dict[int, Entries])
    opened: list[Assignment] = field(default_factory=list[Assignment])

    def __bool__(self) -> bool:
        return bool(self.entries or self.opened)

    def partition(self, number: int) -> Entries:
        return self.entries.setdefault(number, Entries())


class Dispatcher:
    """The round trips of one model's tickets.

    `wake` is called whenever the next tick may find something to do; `clock` is the event loop's.
    """

    def __init__(
        self,
        *,
        model: str,
        window: Window,
        granted: GrantedTickets,
        lanes: list[JournalLane],
        granter: Granter,
        queue: Tickets,
        telemetry: Telemetry,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        wake: Callable[[], None],
        open_answer_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._model = model
        self._window = window
        self._granted = granted
        self._lanes = lanes
        self._granter = granter
        self._queue = queue
        self._telemetry = telemetry
        self._spawn = spawn
        self._wake = wake
        self._open_answer_s = open_answer_s
        self._clock = clock

    async def carry_out(self, work: Work) -> None:
        """Stores the entries, all partitions at once, and grants what has its open; a slow partition follows alone."""
        ready, slow = list(work.opened), set[asyncio.Task[list[Assignment]]]()
        if len(work.entries) == 1 and not ready:  # mostly; nobody else would wait for it
            ((partition, entries),) = work.entries.items()
            ready = await self._write(partition, entries)
        elif work.entries:
            writing = [asyncio.create_task(self._write(partition, one)) for partition, one in work.entries.items()]
            done, slow = await asyncio.wait(writing, timeout=SLOW_S)
            ready.extend(assignment for task in done for assignment in task.result())
        self._grant(ready)
        for task in asyncio.as_completed(slow):
            self._grant(await task)

    async def _write(self, partition: int, entries: Entries) -> list[Assignment]:
        """Appends one message. Returns the assignments whose open is now stored."""
        opens = [one.held.open_entry(self._model, worker=one.worker.id) for one in entries.fresh]
        opens += [held.open_entry(self._model) for held in entries.asks]
        ends = [held.end_entry(held.fault or DEADLINE) for held in entries.ends]
        for held in (*(one.held for one in entries.fresh), *entries.asks):
            held.unused = True
        replies = [held.reply for held in entries.asks]
        try:
            sequence = await self._lanes[partition].submit(opens, ends)
        except BrokerError:
            self._not_stored(entries, replies)
            return []
        self._stored(entries, replies, sequence)
        return entries.fresh

    def _stored(self, entries: Entries, replies: list[str], sequence: int) -> None:
        now = self._clock()
        for assignment in entries.fresh:
            assignment.held.attempt = sequence
        for held, reply in zip(entries.asks, replies, strict=True):
            if held.phase is Phase.ASKED and held.reply == reply:
                held.asked_at(now, self._open_answer_s)
        for held in entries.ends:
            self._ended(held)

    def _not_stored(self, entries: Entries, replies: list[str]) -> None:
        """Everything waits for the next tick after the partition's back-off."""
        for assignment in entries.fresh:
            assignment.take_back()
        for held, reply in zip(entries.asks, replies, strict=True):
            if held.phase is Phase.ASKED and held.reply == reply:
                held.ask()
        for held in entries.ends:
            held.enter(Phase.END)
        self._wake()

    def _ended(self, held: Held) -> None:
        """The end entry is stored: the owner answers, and acknowledges the ticket."""
        if held.gone:
            return
        fault = held.fault or DEADLINE
        log.info("schedule.ended", request_id=held.ticket.key, choice=held.ticket.choice, fault=fault.code)
        self._window.remove(held)
        self._queue.let_go(held.delivery)

    def _grant(self, assignments: Iterable[Assignment]) -> None:
        """One grant a worker, each on its own: a worker that does not answer holds up nobody else."""
        by_worker: dict[Worker, list[Assignment]] = {}
        for assignment in assignments:
            if self._still_wanted(assignment.held):
                by_worker.setdefault(assignment.worker, []).append(assignment)
            else:
                assignment.take_back()
        for worker, chosen in by_worker.items():
            self._spawn(self._grant_to(worker, chosen))

    def _still_wanted(self, held: Held) -> bool:
        if held.fault is None and held.deadline_at <= self._clock():
            held.fault = DEADLINE
        return not held.gone and held.fault is None

    async def _grant_to(self, worker: Worker, assignments: list[Assignment]) -> None:
        now = self._clock()
        for assignment in assignments:
            assignment.held.unused = False
        worker.granting()
        outcome = await self._granter.send(worker.id, [one.held.grant_item(now) for one in assignments])
        # One that was cancelled on its way says nothing about the worker's room.
        refused = [one for one in assignments if one.held.sequence not in outcome.taken and one.held.fault is None]
        worker.granted(outcome.room, all_taken=not refused)
        for assignment in assignments:
            self._settle(assignment, outcome, now)
        if refused:
            log.info("schedule.grant_refused", worker=worker.id, refused=len(refused), tickets=len(assignments))
        self._wake()

    def _settle(self, assignment: Assignment, outcome: Outcome, granted_at: float) -> None:
        held = assignment.held
        taken = held.sequence in outcome.taken
        if taken and not assignment.worker.silent:
            assignment.unplace()
            assignment.worker.took(assignment.room, self._clock())
            self._taken(held, assignment.worker.id, granted_at)
            return
        if held.sequence in outcome.too_large:
            held.fault = held.fault or TOO_LARGE
        assignment.take_back()
        if taken or held.sequence in outcome.unanswered:
            held.ask()
        else:
            held.unused = True

    def _taken(self, held: Held, worker: str, granted_at: float) -> None:
        """From here on the worker keeps the ticket alive."""
        if held.gone:  # delivered anew, or forgotten after a pause: a later open takes it from this worker
            return
        self._window.remove(held)
        self._queue.let_go(held.delivery)
        self._granted.add(held.granted_to(worker, granted_at))
        self._record(held, worker, granted_at)

    def _record(self, held: Held, worker: str, granted_at: float) -> None:
        ticket = held.ticket
        service_s = max(granted_at - held.pulled_at, 0.0)
        self._telemetry.stage_time(queued_s=held.queued_s, service_s=service_s, model=self._model)
        attributes = {REQUEST_MODEL: self._model, REQUEST_ID: ticket.key, CHOICE: ticket.choice}
        end_s = time.time()
        self._telemetry.span(
            "schedule",
            traceparent=ticket.trace,
            start_s=end_s - service_s,
            end_s=end_s,
            attributes={**attributes, ATTEMPT: held.attempt, "headrace.worker": worker},
        )
        log.debug(
            "schedule.granted",
            request_id=ticket.key,
            choice=ticket.choice,
            attempt=held.attempt,
            worker=worker,
            waited_s=round(service_s, 4),
        )
