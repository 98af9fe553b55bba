"""The attempts that a worker holds, and what becomes of each: calls on the engine, and entries in its outbox.

What is taken, and what is handed back, dropped or cancelled, is the worker's choice.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import structlog

from schemas.faults import Fault
from stages.inference.engine import Advance, EngineRequest, StepOutput
from stages.inference.held import Held
from stages.inference.kv_budget import KvBudget
from stages.inference.outbox import Stream
from stages.inference.parking import Parking
from stages.inference.served import Served

log = structlog.get_logger()


class EngineInbox(Protocol):
    """The two calls of an engine that a worker makes; neither waits."""

    def add(self, request: EngineRequest) -> None: ...

    def abort(self, ids: list[str]) -> None: ...


class Observer(Protocol):
    """Who is told what became of the work: telemetry."""

    def began(self, held: Held) -> None:
        """Its first ids are here, and with them how much of its context was in the KV cache."""
        ...

    def ended(self, held: Held, outcome: str, seconds: float) -> None:
        """It ended so long after it was taken; `outcome` is a finish, a fault's code, or why it goes on elsewhere."""
        ...


class Attempts:
    """Those of one `worker`. An attempt that is done gives back what it has of `budget` and `parking`."""

    def __init__(
        self,
        worker: str,
        engine: EngineInbox,
        observer: Observer,
        budget: KvBudget,
        parking: Parking,
        *,
        block_size: int,
        clock: Callable[[], float],
    ) -> None:
        self._worker = worker
        self._engine = engine
        self._observer = observer
        self._budget = budget
        self._parking = parking
        self._block_size = block_size
        self._clock = clock
        self._held: dict[str, Held] = {}
        self._latest: dict[tuple[str, int], Held] = {}
        self._served = Served()
        self.running = 0
        self.prefilling = 0  # of those, the ones that brought no token yet
        self.busy_since = 0.0
        self.tokens_in = 0
        self.tokens_out = 0

    @property
    def held(self) -> Collection[Held]:
        """All of which the journal does not have the last entry."""
        return self._held.values()

    def named(self, name: str) -> Held | None:
        return self._held.get(name)

    def latest(self, key: str, choice: int) -> Held | None:
        """The newest attempt at one choice of a request."""
        return self._latest.get((key, choice))

    def hold(self, held: Held) -> None:
        """From now on this worker answers for it."""
        ticket = held.item.ticket
        self._held[held.name] = held
        self._latest[(ticket.key, ticket.choice)] = held
        held.outbox.open(held.name, Stream(ticket.key, ticket.choice, held.item.attempt, held.before))
        log.debug("inference.taken", request_id=ticket.key, choice=ticket.choice, attempt=held.item.attempt)

    def run(self, held: Held, request: EngineRequest) -> None:
        """Gives it to the engine."""
        if not self.running:
            self.busy_since = self._clock()
        held.running = True
        self.running += 1
        self.prefilling += 1
        held.counted = self._budget.take(request, held.expected_cached)
        self._engine.add(request)

    def advance(self, step: StepOutput) -> None:
        """Notes what one engine step brought. What is not held (dropped, cancelled) it ignores."""
        now = self._clock()
        before = self.tokens_out
        for advance in step.advances:
            held = self._held.get(advance.id)
            if held is None or not held.running:
                continue
            if advance.error:
                self.end(held, advance.fault or Fault("internal", f"the engine gave up: {advance.error}"))
            else:
                self._note_ids(held, advance, now)
        self._budget.stepped(self.tokens_out - before, step.load)

    def finish(self, held: Held, finish: str, stop_id: int | None) -> None:
        """The engine is done with it; it stays held until the journal has it."""
        self._free(held)
        held.last_at = held.last_at or held.taken_at
        held.outbox.finish(held.name, finish, stop_id, held.times())
        self._observe(held, finish)

    def end(self, held: Held, fault: Fault) -> None:
        """It ends in a fault, which the owner answers; the ticket is acknowledged by the owner as well."""
        self._stop(held)
        held.outbox.end(held.name, held.end(fault))
        self._observe(held, fault.code)

    def release(self, held: Held, *, died: bool = False) -> None:
        """Others go on with it. `died`: it ran in an engine that is gone."""
        self._stop(held)
        released = held.released(self._worker, died=died)
        held.outbox.release(held.name, released)
        self._observe(held, "released")

    def abandon(self, held: Held, why: str) -> None:
        """Stops it and says nothing: whatever is to be said, others say."""
        if not held.done:
            self._observe(held, why)
            self._stop(held)
        held.outbox.discard(held.name)
        self._forget(held)

    def over(self, names: Iterable[str]) -> None:
        """The journal has the last entry of these."""
        for name in names:
            if held := self._held.get(name):
                self._forget(held)

    def served(self) -> dict[str, int]:
        """Tokens by tenant, of prompts and of answers, since the process began."""
        for held in self._held.values():
            self._count_served(held)
        return self._served.counts()

    def _note_ids(self, held: Held, advance: Advance, now: float) -> None:
        ids = advance.ids
        if ids:
            if not held.produced:
                self._note_first(held, advance, now)
            held.last_at = now
            held.produced += len(ids)
            self.tokens_out += len(ids)
            if (length := held.length + held.produced) > held.counted:
                held.counted = length + self._block_size - 1  # as the engine does it: a block at a time
                self._budget.grow(held.name, held.counted)
            held.outbox.tokens(held.name, ids, advance.logprobs)
        if advance.finish:
            self.finish(held, advance.finish, advance.stop_id)

    def _note_first(self, held: Held, advance: Advance, now: float) -> None:
        self._parking.clear(held)
        held.first_at = now
        held.scheduled_at = advance.scheduled_at or held.taken_at
        held.cached_tokens = advance.cached_tokens
        held.outbox.started(held.name, held.times())
        self.prefilling -= 1
        self._budget.began(held.name)
        self.tokens_in += held.length - advance.cached_tokens
        if not held.before:  # else the worker that it comes from has counted it
            self._served.add(held.item.ticket.tenant, held.item.ticket.prompt_tokens)
        self._observer.began(held)

    def _count_served(self, held: Held) -> None:
        """Only now and then: with each token it would cost every step."""
        if held.produced > held.told:
            self._served.add(held.item.ticket.tenant, held.produced - held.told)
            held.told = held.produced

    def _stop(self, held: Held) -> None:
        if held.running:
            self._engine.abort([held.name])
        self._free(held)

    def _free(self, held: Held) -> None:
        """It is done: its slot and its KV cache are free again, or its place among the parked."""
        if held.running:
            self.running -= 1
            self.prefilling -= not held.produced
            self._budget.give_back(held.name, held.produced)
        self._count_served(held)
        held.running, held.done = False, True
        self._parking.clear(held)

    def _observe(self, held: Held, outcome: str) -> None:
        self._observer.ended(held, outcome, self._clock() - held.taken_at)

    def _forget(self, held: Held) -> None:
        del self._held[held.name]
        place = (held.key, held.item.ticket.choice)
        if self._latest.get(place) is held:
            del self._latest[place]
