"""What a worker holds: credits, taking grants, what the engine brought, dropping, cancelling, handing back.

No loop, no broker, no clock of its own: it turns what happens into calls on the engine and entries in the outboxes.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from schemas.control import DropItem, WorkerState, WorkerStatus
from schemas.faults import Fault
from schemas.grant import Credits, Grant, GrantItem, GrantReply
from schemas.poison import ALONE_FROM
from stages.inference.admission import KvBudget, already_over, fault_of
from stages.inference.engine import Advance, EngineFacts, EngineRequest, StepOutput
from stages.inference.held import Held, request_of
from stages.inference.outbox import PartitionOutbox, Stream
from stages.inference.parking import PARK_S, Parking

log = structlog.get_logger()


class EngineInbox(Protocol):
    """The two calls of an engine that a worker makes; neither waits."""

    def add(self, request: EngineRequest) -> None: ...

    def abort(self, ids: list[str]) -> None: ...


class Observer(Protocol):
    """Who is told what became of the work: telemetry."""

    def ended(self, held: Held, outcome: str, seconds: float) -> None:
        """It ended so long after it was taken; `outcome` is a finish, a fault's code, or why it goes on elsewhere."""
        ...


@dataclass(frozen=True)
class WorkerIdentity:
    """Whose heartbeats and journal entries these are; `model` is the slug."""

    worker: str
    model: str


class Worker:
    """The books of one worker. `outboxes` has one entry per partition."""

    def __init__(
        self,
        identity: WorkerIdentity,
        facts: EngineFacts,
        engine: EngineInbox,
        outboxes: Sequence[PartitionOutbox],
        observer: Observer,
        *,
        output_reserve: int = 256,
        is_cancelled: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._facts = facts
        self._engine = engine
        self._outboxes = outboxes
        self._observer = observer
        self._budget = KvBudget(facts.kv_tokens, output_reserve)
        self._is_cancelled = is_cancelled
        self._clock = clock
        self._unix_clock = unix_clock
        self._held: dict[str, Held] = {}
        self._attempts: dict[tuple[str, int], str] = {}
        self._running = 0
        self._parking = Parking()
        self.state: WorkerState = "ready"
        self.tokens_in = 0
        self.tokens_out = 0

    @property
    def held(self) -> Collection[Held]:
        """All attempts of which the journal does not have the last entry."""
        return self._held.values()

    @property
    def running(self) -> int:
        """How many of them the engine still works on."""
        return self._running

    @property
    def parked(self) -> list[int]:
        """The sequence of the ticket that has to run alone and has not begun to, if there is one."""
        return [held.item.sequence for held in (self._parking.waiting,) if held is not None]

    @property
    def has_room_for_parked(self) -> bool:
        """Whether what is parked may `unpark`."""
        return self._parking.waiting is not None and not self._running and self.state == "ready"

    def credits(self, blocked: bool = False) -> Credits:
        """What it can still take; nothing while it drains, is stalled, or the journal is `blocked`.

        Nor while something is here that has to run alone and did not bring a token yet.
        """
        if self.state != "ready" or blocked or self._parking.taken:
            return Credits(0, 0)
        # What is finished but not yet in the journal holds memory, not a slot: as much again, and no more.
        slots = min(self._facts.slots - self._running, 2 * self._facts.slots - len(self._held))
        return Credits(max(slots, 0), self._budget.free)

    def take(self, grant: Grant, blocked: bool = False) -> GrantReply:
        """Takes of a grant what fits. What it lists as taken, a scheduler may let go; the rest stays with that one."""
        taken = [item.sequence for item in grant.items if self._take_item(item, blocked)]
        return GrantReply(taken, self.credits(blocked))

    def unpark(self) -> str:
        """What is parked will run next ("" where nothing is): `begin` it once a heartbeat has said so."""
        held = self._parking.leave() if self.has_room_for_parked else None
        return held.name if held is not None else ""

    def begin(self, name: str) -> None:
        """Runs what was unparked, unless it is over by now."""
        held = self._held.get(name)
        if held is not None and not (held.running or held.done):
            self._run(held, request_of(held.item))

    def advance(self, step: StepOutput) -> None:
        """Notes what one engine step brought. What it does not hold (dropped, cancelled) it ignores."""
        now = self._clock()
        for advance in step.advances:
            held = self._held.get(advance.id)
            if held is None or not held.running:
                continue
            if advance.error:
                self._end(held, advance.fault or Fault("internal", f"the engine gave up: {advance.error}"))
            else:
                self._note_ids(held, advance, now)

    def over(self, names: Iterable[str]) -> None:
        """The journal has the last entry of these attempts."""
        for name in names:
            if held := self._held.get(name):
                self._forget(held)

    def drop(self, items: Iterable[DropItem]) -> None:
        """The owner does not want these attempts any more: their tokens have no effect."""
        for item in items:
            name = self._attempts.get((item.key, item.choice))
            if name is not None and self._held[name].item.attempt == item.attempt:
                self._abandon(self._held[name], "dropped")

    def cancel(self, key: str) -> None:
        """The client is gone: the owner ends the request, here it only stops."""
        for held in [held for held in self._held.values() if held.key == key]:
            self._abandon(held, "cancelled")

    def expire(self) -> None:
        """Ends what has run into its deadline."""
        now = self._unix_clock()
        for held in [held for held in self._held.values() if not held.done and held.deadline <= now]:
            self._end(held, held.past_deadline())

    def release_all(self, *, died: bool = False) -> int:
        """Hands back all that is not done, after what was generated so far. Returns how many.

        `died`: the engine is gone, and with it what ran in it.
        """
        left = [held for held in self._held.values() if not held.done]
        for held in left:
            self._release(held, died=died and held.running)
        return len(left)

    def release_parked(self) -> None:
        """Hands back what has not begun to run."""
        for held in [held for held in self._held.values() if not (held.running or held.done)]:
            self._release(held, died=False)

    def release_for_parked(self) -> int:
        """Hands back what runs, once something has been parked for longer than `PARK_S`: then that may `unpark`.

        To be called when a step has just ended: what hangs in the engine is not let off, and what is parked not blamed
        for it. Returns how many.
        """
        parked = self._parking.waiting
        if parked is None or self.state != "ready" or self._clock() - parked.taken_at <= PARK_S:
            return 0
        running = [held for held in self._held.values() if held.running]
        for held in running:
            self._release(held, died=False)
        return len(running)

    def forget_all(self) -> int:
        """Drops all without a word: it was cut off for so long that others have it now. Returns how much that was."""
        everything = list(self._held.values())
        for held in everything:
            self._abandon(held, "forgotten")
        return len(everything)

    def status(self, sent: int, *, blocked: bool = False, waiting: int = 0, step_s: float = 0.0) -> WorkerStatus:
        """The heartbeat number `sent`."""
        return WorkerStatus(
            worker=self._identity.worker,
            model=self._identity.model,
            state=self.state,
            credits=self.credits(blocked),
            sent=sent,
            max_slots=self._facts.slots,
            kv_capacity=self._facts.kv_tokens,
            running=self._running,
            waiting=waiting,
            step_tokens=self._facts.step_tokens,
            step_s=step_s,
            held=[held.item.sequence for held in self._held.values()],
            parked=self.parked,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
        )

    def _take_item(self, item: GrantItem, blocked: bool) -> bool:
        """Whether this worker answers for the ticket from now on."""
        ticket = item.ticket
        name = self._attempts.get((ticket.key, ticket.choice))
        if name is not None and self._held[name].item.attempt >= item.attempt:
            return True  # the same grant again, or one that a later attempt has overtaken: it is here already
        if self._is_cancelled(ticket.key) or ticket.partition >= len(self._outboxes):
            return False
        if name is not None:
            self._abandon(self._held[name], "overtaken")
        request = request_of(item)
        # What runs alone begins with an empty engine, which takes whatever its context allows.
        alone = item.deaths >= ALONE_FROM or self._running == 0
        if not (self.credits(blocked).slots and self._budget.fits(request, alone)):
            return False
        self._start(item, request)
        return True

    def _start(self, item: GrantItem, request: EngineRequest) -> None:
        """Takes the ticket: to the engine, or, where there is nothing for it to do, straight to the journal."""
        held = self._hold(item, request)
        if held.deadline <= self._unix_clock():
            self._end(held, held.past_deadline())
        elif fault := fault_of(request, self._facts):
            self._end(held, fault)
        elif over := already_over(request, self._facts):
            self._finish(held, *over)
        elif held.alone:
            self._start_alone(held, request)
        else:
            self._run(held, request)

    def _start_alone(self, held: Held, request: EngineRequest) -> None:
        waits = self._running > 0
        self._parking.take(held, waits=waits)
        log.warning("inference.runs_alone", request_id=held.key, deaths=held.item.deaths, parked=waits)
        if not waits:
            self._run(held, request)

    def _run(self, held: Held, request: EngineRequest) -> None:
        held.running = True
        self._running += 1
        held.counted = self._budget.take(request)
        self._engine.add(request)

    def _hold(self, item: GrantItem, request: EngineRequest) -> Held:
        ticket = item.ticket
        outbox = self._outboxes[ticket.partition]
        held = Held(
            item,
            request.id,
            outbox,
            before=len(request.generated),
            taken_at=self._clock(),
            taken_unix=self._unix_clock(),
            length=len(request.prompt) + len(request.generated),
        )
        self._held[held.name] = held
        self._attempts[(ticket.key, ticket.choice)] = held.name
        outbox.open(held.name, Stream(ticket.key, ticket.choice, item.attempt, held.before))
        log.debug("inference.taken", request_id=ticket.key, choice=ticket.choice, attempt=item.attempt)
        return held

    def _note_ids(self, held: Held, advance: Advance, now: float) -> None:
        ids = advance.ids
        if ids:
            if not held.produced:
                self._note_first(held, advance, now)
            held.last_at = now
            held.produced += len(ids)
            self.tokens_out += len(ids)
            if (length := held.length + held.produced) > held.counted:
                held.counted = length + self._facts.block_size - 1  # as the engine does it: a block at a time
                self._budget.grow(held.name, held.counted)
            held.outbox.tokens(held.name, ids, advance.logprobs)
        if advance.finish:
            self._finish(held, advance.finish, advance.stop_id)

    def _note_first(self, held: Held, advance: Advance, now: float) -> None:
        self._parking.clear(held)
        held.first_at = now
        held.scheduled_at = advance.scheduled_at or held.taken_at
        held.cached_tokens = advance.cached_tokens
        held.outbox.started(held.name, held.times())
        self.tokens_in += held.length - advance.cached_tokens

    def _finish(self, held: Held, finish: str, stop_id: int | None) -> None:
        """The engine is done with it; it stays held until the journal has it."""
        self._free(held)
        held.last_at = held.last_at or held.taken_at
        held.outbox.finish(held.name, finish, stop_id, held.times())
        self._observe(held, finish)

    def _end(self, held: Held, fault: Fault) -> None:
        """It ends in a fault, which the owner answers; the ticket is acknowledged by the owner as well."""
        self._stop(held)
        held.outbox.end(held.name, held.end(fault))
        self._observe(held, fault.code)

    def _release(self, held: Held, *, died: bool) -> None:
        """Others go on with it."""
        self._stop(held)
        released = held.released(self._identity.worker, died=died)
        held.outbox.release(held.name, released)
        self._observe(held, "released")

    def _abandon(self, held: Held, why: str) -> None:
        """Stops it and says nothing: whatever is to be said, others say."""
        if not held.done:
            self._observe(held, why)
            self._stop(held)
        held.outbox.discard(held.name)
        self._forget(held)

    def _stop(self, held: Held) -> None:
        if held.running:
            self._engine.abort([held.name])
        self._free(held)

    def _free(self, held: Held) -> None:
        """It is done: its slot and its KV cache are free again, or its place among the parked."""
        if held.running:
            self._running -= 1
            self._budget.give_back(held.name)
        held.running, held.done = False, True
        self._parking.clear(held)

    def _observe(self, held: Held, outcome: str) -> None:
        self._observer.ended(held, outcome, self._clock() - held.taken_at)

    def _forget(self, held: Held) -> None:
        del self._held[held.name]
        place = (held.key, held.item.ticket.choice)
        if self._attempts.get(place) == held.name:
            del self._attempts[place]
