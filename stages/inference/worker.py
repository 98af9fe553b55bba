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
from schemas.journal import End, Released, WorkerTimes
from stages.inference.admission import KvBudget, already_over, fault_of
from stages.inference.engine import Advance, EngineFacts, EngineRequest, StepOutput
from stages.inference.outbox import PartitionOutbox, Stream

log = structlog.get_logger()


@dataclass(slots=True)
class Held:
    """One attempt that this worker holds, from its grant until the journal has all of it.

    `name` is unique over all attempts. Times are monotonic seconds. `running` ends when the engine is done with it.
    """

    item: GrantItem
    name: str
    before: int
    taken_at: float
    taken_unix: float
    length: int
    running: bool = True
    produced: int = 0
    scheduled_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
    cached_tokens: int = 0

    @property
    def key(self) -> str:
        return self.item.ticket.key

    @property
    def deadline(self) -> float:
        """Unix seconds, counted from the broker's own time stamp of the ticket."""
        return self.item.stored_at + self.item.ticket.deadline_ms / 1000

    def times(self) -> WorkerTimes:
        return WorkerTimes(
            scheduled=max(self.scheduled_at - self.taken_at, 0.0),
            first_token=max(self.first_at - self.taken_at, 0.0),
            finished=max(self.last_at - self.taken_at, 0.0),
            cached_tokens=self.cached_tokens,
            schedule=self.item.schedule,
        )


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

    def credits(self, blocked: bool = False) -> Credits:
        """What it can still take; nothing while it drains, is stalled, or the journal is `blocked`."""
        if self.state != "ready" or blocked:
            return Credits(0, 0)
        # What is finished but not yet in the journal holds memory, not a slot: as much again, and no more.
        slots = min(self._facts.slots - self._running, 2 * self._facts.slots - len(self._held))
        return Credits(max(slots, 0), self._budget.free)

    def take(self, grant: Grant, blocked: bool = False) -> GrantReply:
        """Takes of a grant what fits. What it lists as taken, a scheduler may let go; the rest stays with that one."""
        taken = [item.sequence for item in grant.items if self._take_item(item, blocked)]
        return GrantReply(taken, self.credits(blocked))

    def advance(self, step: StepOutput) -> None:
        """Notes what one engine step brought. What it does not hold (dropped, cancelled) it ignores."""
        now = self._clock()
        for advance in step.advances:
            held = self._held.get(advance.id)
            if held is None or not held.running:
                continue
            if advance.error:
                self._end(held, Fault("internal", f"the engine gave up: {advance.error}"))
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
        for held in [held for held in self._held.values() if held.running and held.deadline <= now]:
            self._end(held, deadline_fault(held.item))

    def release_all(self) -> int:
        """Hands back all that the engine still works on, after what it generated so far. Returns how many."""
        running = [held for held in self._held.values() if held.running]
        for held in running:
            self._stop(held)
            ticket = held.item.ticket
            released = Released(held.key, ticket.choice, held.item.attempt)
            self._outboxes[ticket.partition].release(held.name, released)
            self._observe(held, "released")
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
        free = self.credits(blocked)
        request = _request(item)
        if not (free.slots and self._budget.fits(request, alone=self._running == 0)):
            return False
        self._start(item, request)
        return True

    def _start(self, item: GrantItem, request: EngineRequest) -> None:
        """Takes the ticket: to the engine, or, where there is nothing for it to do, straight to the journal."""
        ticket = item.ticket
        held = Held(
            item,
            request.id,
            before=len(request.generated),
            taken_at=self._clock(),
            taken_unix=self._unix_clock(),
            length=len(request.prompt) + len(request.generated),
        )
        self._held[held.name] = held
        self._attempts[(ticket.key, ticket.choice)] = held.name
        self._running += 1
        self._budget.take(request)
        outbox = self._outboxes[ticket.partition]
        outbox.open(held.name, Stream(ticket.key, ticket.choice, item.attempt, held.before))
        log.debug("inference.taken", request_id=ticket.key, choice=ticket.choice, attempt=item.attempt)
        if held.deadline <= self._unix_clock():
            self._end(held, deadline_fault(item))
        elif fault := fault_of(request, self._facts):
            self._end(held, fault)
        elif over := already_over(request, self._facts):
            self._finish(held, *over)
        else:
            self._engine.add(request)

    def _note_ids(self, held: Held, advance: Advance, now: float) -> None:
        ids = advance.ids
        if ids:
            if not held.produced:
                self._note_first(held, advance, now)
            held.last_at = now
            held.produced += len(ids)
            self.tokens_out += len(ids)
            self._budget.grow(held.name, held.length + held.produced)
            self._outboxes[held.item.ticket.partition].tokens(held.name, ids, advance.logprobs)
        if advance.finish:
            self._finish(held, advance.finish, advance.stop_id)

    def _note_first(self, held: Held, advance: Advance, now: float) -> None:
        held.first_at = now
        held.scheduled_at = advance.scheduled_at or held.taken_at
        held.cached_tokens = advance.cached_tokens
        self._outboxes[held.item.ticket.partition].started(held.name, held.times())
        self.tokens_in += held.length - advance.cached_tokens

    def _finish(self, held: Held, finish: str, stop_id: int | None) -> None:
        """The engine is done with it; it stays held until the journal has it."""
        self._free(held)
        held.last_at = held.last_at or held.taken_at
        self._outboxes[held.item.ticket.partition].finish(held.name, finish, stop_id, held.times())
        self._observe(held, finish)

    def _end(self, held: Held, fault: Fault) -> None:
        """It ends in a fault, which the owner answers; the ticket is acknowledged by the owner as well."""
        self._stop(held)
        ticket = held.item.ticket
        end = End(
            key=held.key,
            choice=ticket.choice,
            session=ticket.session,
            fault=fault,
            encoding=ticket.answer.encoding,
            ack=held.item.ack,
            attempt=held.item.attempt,
        )
        self._outboxes[ticket.partition].end(held.name, end)
        self._observe(held, fault.code)

    def _abandon(self, held: Held, why: str) -> None:
        """Stops it and says nothing: whatever is to be said, others say."""
        if held.running:
            self._observe(held, why)
            self._stop(held)
        self._outboxes[held.item.ticket.partition].discard(held.name)
        self._forget(held)

    def _stop(self, held: Held) -> None:
        if held.running:
            self._engine.abort([held.name])
            self._free(held)

    def _free(self, held: Held) -> None:
        """Its slot and its KV cache are free again."""
        held.running = False
        self._running -= 1
        self._budget.give_back(held.name)

    def _observe(self, held: Held, outcome: str) -> None:
        self._observer.ended(held, outcome, self._clock() - held.taken_at)

    def _forget(self, held: Held) -> None:
        del self._held[held.name]
        place = (held.key, held.item.ticket.choice)
        if self._attempts.get(place) == held.name:
            del self._attempts[place]


def deadline_fault(item: GrantItem) -> Fault:
    return Fault("deadline", f"not finished within {item.ticket.deadline_ms / 1000:g} s")


def _request(item: GrantItem) -> EngineRequest:
    """The engine's request for one granted ticket, under a name that no other attempt has."""
    from schemas.codec import unpack_ids

    ticket = item.ticket
    return EngineRequest(
        id=f"{ticket.key}/{ticket.choice}/{item.attempt}",
        prompt=ticket.prompt_ids(),
        sampling=ticket.sampling,
        generated=unpack_ids(item.ids),
        cache_salt=ticket.cache_salt,
    )
