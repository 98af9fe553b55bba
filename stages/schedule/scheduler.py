"""The tickets of one model, from the pull to the grant: what comes in, the tick, and what ends a ticket before."""

import itertools
import time
from collections.abc import Container

import structlog

from broker.subjects import partition_of
from broker.work_queue import Delivery
from schemas.codec import decode
from schemas.control import WorkerStatus
from schemas.journal import OpenReply
from schemas.ticket import Ticket
from stages.schedule.cached_blocks import CachedBlocks
from stages.schedule.cheapest import cheapest
from stages.schedule.dispatch import CANCELLED, DEADLINE, Assignment, Tickets, Work
from stages.schedule.fairness import Tenants
from stages.schedule.granted import Accused, Granted, GrantedTickets
from stages.schedule.held import Held, Phase
from stages.schedule.journal_lane import JournalLane
from stages.schedule.lengths import Lengths
from stages.schedule.policy import Candidate, Choice, Policy, State
from stages.schedule.settings import ScheduleSettings
from stages.schedule.taking_back import Silence, TakenBack
from stages.schedule.window import Window
from stages.schedule.workers import Workers

LOOK_AT_CLOCKS_S = 0.05
"""How often every ticket that is held is looked at: deadlines, and opens that wait for an answer."""

log = structlog.get_logger()


class Scheduler:
    """State and decisions of one model; it waits for nothing. `now` is always the event loop's clock, in seconds.

    `inbox` is the prefix under which answers to opens arrive, `cancelled` holds the keys of cancelled requests; whoever
    calls keeps `cached` up to date.
    """

    def __init__(
        self,
        model: str,
        settings: ScheduleSettings,
        *,
        lanes: list[JournalLane],
        queue: Tickets,
        inbox: str,
        cancelled: Container[str],
        cached: CachedBlocks,
        policy: Policy = cheapest,
    ) -> None:
        self.model = model
        self.window = Window()
        self.workers = Workers(settings.worker_silent_s)
        self.granted = GrantedTickets()
        self.tenants = Tenants(settings.tenant_weights)
        self._accused = Accused()
        self._cached = cached
        self._lengths = Lengths()
        self._reserve = settings.output_reserve
        self._lanes = lanes
        self._queue = queue
        self._inbox = inbox
        self._cancelled = cancelled
        self._policy = policy
        self._replies = itertools.count(1)
        self._look_at = 0.0
        self.looks_again = False
        """Whether the last tick left something although a slot was free: the next one may find that changed."""

    def pulled(self, delivery: Delivery, now: float) -> None:
        """Takes in one ticket. Raises `WireError` where it is none."""
        ticket = decode(Ticket, delivery.data)
        age_s = max(time.time() - delivery.stored_at, 0.0)
        held = Held(
            delivery,
            ticket,
            partition_of(ticket.key, len(self._lanes)),
            pulled_at=now,
            deadline_at=now + ticket.deadline_ms / 1000 - age_s,
            phase=Phase.READY,
            queued_s=age_s,
        )
        self.window.put(held)
        self._lengths.came(ticket.prompt_tokens)
        # A broker killed right after a fetch starts counting deliveries again: what we know ourselves counts too.
        if self.granted.forget(delivery.sequence) or delivery.deliveries > 1:
            held.ask()
        if ticket.key in self._cancelled:
            held.end(CANCELLED)
        elif held.deadline_at <= now:
            held.end(DEADLINE)

    def cancel(self, key: str) -> bool:
        """A request was cancelled: every choice held of it ends. Returns whether any is held."""
        choices = self.window.of_key(key)
        for held in choices:
            held.end(CANCELLED)
        return bool(choices)

    def heard(self, status: WorkerStatus, now: float) -> bool:
        """A heartbeat. Returns whether the worker could take something now."""
        for tenant, tokens in self.workers.served_since(status):
            self.tenants.served(tenant, tokens)
        worker = self.workers.heard(status, now)
        self.granted.heard(worker.id, frozenset(status.held), now)
        return worker.open and worker.candidate(now).slots > 0

    def answered(self, subject: str, reply: OpenReply) -> None:
        """The owner's answer to an open that was not fresh."""
        held = self.window.answer_to(subject)
        if held is None or held.phase is not Phase.ASKED:
            return
        if reply.ended:
            log.info("schedule.had_ended", request_id=held.ticket.key, choice=held.ticket.choice)
            self._release(held)  # the owner acknowledges it
        else:
            held.answered(reply)

    def take_back_silent(self, now: float, undisturbed_since: float = 0.0) -> list[Silence]:
        """Workers that are silent, with what was granted to them: the caller tells the journals, and so their owners.

        A worker that was not heard of since we were disturbed ourselves may be as well as before: no death is counted.
        """
        silences: list[Silence] = []
        for worker in self.workers.fall_silent(now):
            tickets = self.granted.take_back(worker.id)
            log.warning("schedule.worker_silent", worker=worker.id, model=self.model, tickets=len(tickets))
            last = worker.status if worker.seen_at > undisturbed_since else None
            silence = Silence(worker.id, [TakenBack(one, one.released(last)) for one in tickets])
            self._accused.put(worker.id, [one.granted for one in silence.tickets if one.released.died])
            silences.append(silence)
        return silences

    def acquitted(self, status: WorkerStatus) -> list[Granted]:
        """What seemed to have died with a worker that this heartbeat shows to be alive, once."""
        if status.state == "stalled":
            return []
        return self._accused.pop(status.worker)

    def forget(self) -> None:
        """After a pause so long that all of it is others' by now: without ACK or NAK. The queue forgets by itself."""
        self.granted.clear()
        self.window.clear()

    def tick(self, now: float) -> Work:
        """Decides what happens now, and marks it as under way: the caller has it carried out."""
        self._look_at_clocks(now)
        work = Work()
        for held in self._writable(Phase.END, now):
            held.enter(Phase.ENDING)
            work.partition(held.partition).ends.append(held)
        for held in self._writable(Phase.ASK, now):
            held.enter(Phase.ASKED)
            self.window.expect(held, f"{self._inbox}.{next(self._replies)}")
            work.partition(held.partition).asks.append(held)
        for assignment in self._place(now):
            if assignment.held.fresh:
                work.partition(assignment.held.partition).fresh.append(assignment)
            else:
                work.opened.append(assignment)
        return work

    def _look_at_clocks(self, now: float) -> None:
        if now < self._look_at:
            return
        self._look_at = now + LOOK_AT_CLOCKS_S
        for held in self.window:
            if held.deadline_at <= now:
                held.end(DEADLINE)
            elif held.phase is Phase.ASKED and held.ask_again_at <= now:
                log.info("schedule.open_unanswered", request_id=held.ticket.key, choice=held.ticket.choice)
                held.ask()

    def _writable(self, phase: Phase, now: float) -> list[Held]:
        return [held for held in self.window.in_phase(phase) if self._lanes[held.partition].takes(now)]

    def _place(self, now: float) -> list[Assignment]:
        self.looks_again = False
        candidates = self.workers.candidates(now)
        if not any(one.open and one.slots for one in candidates):
            return []
        ready = self._ready(now)
        placed = self._planned(ready, candidates, now) if ready else []
        if not self.window.in_phase(Phase.READY):
            self.tenants.all_served()
        return placed

    def _planned(self, ready: list[Held], candidates: list[Candidate], now: float) -> list[Assignment]:
        plan = self._policy(self._state(ready, candidates, now))
        for sequence in plan.held:
            self.window.of_sequence(sequence).hold(now)
        self.looks_again = len(plan.grants) < len(ready) and _slots(candidates) > len(plan.grants)
        return [self._assigned(sequence, choice, len(ready), now) for sequence, choice in plan.grants.items()]

    def _ready(self, now: float) -> list[Held]:
        """What may be granted now: a fresh ticket only if its partition takes its open."""
        shut = {number for number, lane in enumerate(self._lanes) if not lane.takes(now)}
        ready = self.window.in_phase(Phase.READY)
        return [held for held in ready if not (held.fresh and held.partition in shut)] if shut else ready

    def _state(self, ready: list[Held], candidates: list[Candidate], now: float) -> State:
        step_tokens = max(one.step_tokens for one in candidates)
        levels = self.tenants.levels((held.ticket.tenant for held in ready), now)
        return State(
            now,
            [held.waiting(self._reserve) for held in ready],
            candidates,
            levels,
            self.tenants.weights,
            lambda ticket: self._cached.match(ticket.block_hashes, now),
            self._cached.block_tokens,
            self._lengths.long_tokens(step_tokens),
            self.tenants.ahead(levels, now),
        )

    def _assigned(self, sequence: int, choice: Choice, waiting: int, now: float) -> Assignment:
        held, worker = self.window.of_sequence(sequence), self.workers.get(choice.worker)
        assert worker is not None, "a policy places on the candidates that it was given"
        known = self._cached.known(choice.worker)
        held.place(choice, queue=waiting - 1, known=known, now=now)
        assignment = Assignment(held, worker, held.kv_tokens(self._reserve), choice.cached, self.tenants)
        assignment.place()
        self._cached.sent(choice.worker, held.ticket.block_hashes, now)
        return assignment

    def _release(self, held: Held) -> None:
        self.window.remove(held)
        self._queue.let_go(held.delivery)


def _slots(candidates: list[Candidate]) -> int:
    return sum(one.slots for one in candidates if one.open)
