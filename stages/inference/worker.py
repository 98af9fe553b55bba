"""What a worker takes on and lets go: credits, grants, what has to run alone, dropping, cancelling, handing back.

No loop, no broker, no clock of its own.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import structlog

from schemas.control import DropItem, WorkerState, WorkerStatus
from schemas.grant import Credits, Grant, GrantItem, GrantReply
from schemas.poison import ALONE_FROM
from stages.inference.admission import already_over, fault_of
from stages.inference.attempts import Attempts, EngineInbox, Observer
from stages.inference.engine import EngineFacts, EngineRequest, StepOutput
from stages.inference.held import Held, expected_cached, request_of
from stages.inference.kv_budget import KvBudget
from stages.inference.outbox import PartitionOutbox
from stages.inference.outlook import prefill_tokens, seconds_until_end
from stages.inference.pace import PaceLearner
from stages.inference.parking import PARK_S, Parking

log = structlog.get_logger()


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
        output_reserve: int = 64,
        is_cancelled: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._facts = facts
        self._outboxes = outboxes
        self._budget = KvBudget(facts.kv_tokens, output_reserve)
        self._parking = Parking()
        self._attempts = Attempts(
            identity.worker,
            engine,
            observer,
            self._budget,
            self._parking,
            block_size=facts.block_size,
            clock=clock,
        )
        self._pace = PaceLearner()
        self._is_cancelled = is_cancelled
        self._clock = clock
        self._unix_clock = unix_clock
        self.state: WorkerState = "ready"

    @property
    def held(self) -> Collection[Held]:
        """All attempts of which the journal does not have the last entry."""
        return self._attempts.held

    @property
    def running(self) -> int:
        """How many of them the engine still works on."""
        return self._attempts.running

    @property
    def parked(self) -> list[int]:
        """The sequence of the ticket that has to run alone and has not begun to, if there is one."""
        return [held.item.sequence for held in (self._parking.waiting,) if held is not None]

    @property
    def has_room_for_parked(self) -> bool:
        """Whether what is parked may `unpark`."""
        return self._parking.waiting is not None and not self._attempts.running and self.state == "ready"

    def credits(self, blocked: bool = False) -> Credits:
        """What it can still take; nothing while it drains, is stalled, or the journal is `blocked`.

        Nor while something is here that has to run alone and did not bring a token yet.
        """
        if self.state != "ready" or blocked or self._parking.taken:
            return Credits(0, 0)
        # What is finished but not yet in the journal holds memory, not a slot: as much again, and no more.
        slots = min(self._facts.slots - self._attempts.running, 2 * self._facts.slots - len(self._attempts.held))
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
        held = self._attempts.named(name)
        if held is not None and not (held.running or held.done):
            self._attempts.run(held, request_of(held.item))

    def advance(self, step: StepOutput) -> None:
        """Notes what one engine step brought. What it does not hold (dropped, cancelled) it ignores."""
        computed = self._attempts.tokens_in
        self._attempts.advance(step)
        if step.advances or step.load.running:
            # An engine in its own process counts a step from the end of the one before, idle or not.
            seconds = min(step.seconds, self._clock() - self._attempts.busy_since)
            computed = self._attempts.tokens_in - computed
            self._pace.stepped(seconds, len(step.advances), computed, prefilling=self._attempts.prefilling > 0)

    def over(self, names: Iterable[str]) -> None:
        """The journal has the last entry of these attempts."""
        self._attempts.over(names)

    def drop(self, items: Iterable[DropItem]) -> None:
        """The owner does not want these attempts any more: their tokens have no effect."""
        for item in items:
            held = self._attempts.latest(item.key, item.choice)
            if held is not None and held.item.attempt == item.attempt:
                self._attempts.abandon(held, "dropped")

    def cancel(self, key: str) -> None:
        """The client is gone: the owner ends the request, here it only stops."""
        for held in [held for held in self._attempts.held if held.key == key]:
            self._attempts.abandon(held, "cancelled")

    def expire(self) -> None:
        """Ends what has run into its deadline."""
        now = self._unix_clock()
        for held in [held for held in self._attempts.held if not held.done and held.deadline <= now]:
            self._attempts.end(held, held.past_deadline())

    def release_all(self, *, died: bool = False) -> int:
        """Hands back all that is not done, after what was generated so far. Returns how many.

        `died`: the engine is gone, and with it what ran in it.
        """
        left = [held for held in self._attempts.held if not held.done]
        for held in left:
            self._attempts.release(held, died=died and held.running)
        return len(left)

    def release_parked(self) -> None:
        """Hands back what has not begun to run."""
        for held in [held for held in self._attempts.held if not (held.running or held.done)]:
            self._attempts.release(held)

    def release_for_parked(self) -> int:
        """Hands back what runs, once something has been parked for longer than `PARK_S`: then that may `unpark`.

        To be called when a step has just ended: what hangs in the engine is not let off, and what is parked not blamed
        for it. Returns how many.
        """
        parked = self._parking.waiting
        if parked is None or self.state != "ready" or self._clock() - parked.taken_at <= PARK_S:
            return 0
        running = [held for held in self._attempts.held if held.running]
        for held in running:
            self._attempts.release(held)
        return len(running)

    def forget_all(self) -> int:
        """Drops all without a word: it was cut off for so long that others have it now. Returns how much that was."""
        everything = list(self._attempts.held)
        for held in everything:
            self._attempts.abandon(held, "forgotten")
        return len(everything)

    def status(
        self, sent: int, *, blocked: bool = False, waiting: int = 0, step_s: float = 0.0, kv_number: int = -1
    ) -> WorkerStatus:
        """The heartbeat number `sent`."""
        return WorkerStatus(
            worker=self._identity.worker,
            model=self._identity.model,
            state=self.state,
            credits=self.credits(blocked),
            sent=sent,
            max_slots=self._facts.slots,
            kv_capacity=self._facts.kv_tokens,
            running=self._attempts.running,
            waiting=waiting,
            step_tokens=self._facts.step_tokens,
            step_s=step_s,
            held=[held.item.sequence for held in self._attempts.held],
            parked=self.parked,
            tokens_in=self._attempts.tokens_in,
            tokens_out=self._attempts.tokens_out,
            pace=self._pace.pace,
            prefill_tokens=prefill_tokens(self._attempts.held),
            free_in_s=self._free_in(step_s),
            served=self._attempts.served(),
            kv_number=kv_number,
        )

    def _free_in(self, step_s: float) -> float:
        """Seconds until a slot is free, about."""
        if self._attempts.running < self._facts.slots:
            return 0.0
        return seconds_until_end(self._attempts.held, self._facts.context_length, step_s)

    def _take_item(self, item: GrantItem, blocked: bool) -> bool:
        """Whether this worker answers for the ticket from now on."""
        ticket = item.ticket
        held = self._attempts.latest(ticket.key, ticket.choice)
        if held is not None and held.item.attempt >= item.attempt:
            return True  # the same grant again, or one that a later attempt has overtaken: it is here already
        if self._is_cancelled(ticket.key) or ticket.partition >= len(self._outboxes):
            return False
        if held is not None:
            self._attempts.abandon(held, "overtaken")
        request = request_of(item)
        # What runs alone begins with an empty engine, which takes whatever its context allows.
        alone = item.deaths >= ALONE_FROM or self._attempts.running == 0
        fits = self._budget.fits(request, alone, expected_cached(item))
        if not (fits and self.credits(blocked).slots):
            return False
        self._start(item, request)
        return True

    def _start(self, item: GrantItem, request: EngineRequest) -> None:
        """Takes the ticket: to the engine, or, where there is nothing for it to do, straight to the journal."""
        held = self._hold(item, request)
        if held.deadline <= self._unix_clock():
            self._attempts.end(held, held.past_deadline())
        elif fault := fault_of(request, self._facts):
            self._attempts.end(held, fault)
        elif over := already_over(request, self._facts):
            self._attempts.finish(held, *over)
        elif held.alone:
            self._start_alone(held, request)
        else:
            self._attempts.run(held, request)

    def _start_alone(self, held: Held, request: EngineRequest) -> None:
        waits = self._attempts.running > 0
        self._parking.take(held, waits=waits)
        log.warning("inference.runs_alone", request_id=held.key, deaths=held.item.deaths, parked=waits)
        if not waits:
            self._attempts.run(held, request)

    def _hold(self, item: GrantItem, request: EngineRequest) -> Held:
        ticket = item.ticket
        held = Held(
            item,
            request.id,
            self._outboxes[ticket.partition],
            before=len(request.generated),
            taken_at=self._clock(),
            taken_unix=self._unix_clock(),
            length=len(request.prompt) + len(request.generated),
        )
        self._attempts.hold(held)
        return held
