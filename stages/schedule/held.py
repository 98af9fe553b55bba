"""One ticket as the scheduler holds it, from the pull until a worker has taken it or it has ended."""

from dataclasses import dataclass, field
from enum import Enum
from math import inf

from broker.work_queue import Delivery
from schemas.faults import Fault
from schemas.grant import GrantItem
from schemas.journal import End, Open, OpenReply
from schemas.placement import Placement
from schemas.poison import ALONE_FROM
from schemas.ticket import StageTime, Ticket
from stages.schedule.cheapest import HOLD_S
from stages.schedule.granted import Granted
from stages.schedule.policy import Choice, Waiting

LONGEST_ASK_S = 16.0


class Phase(Enum):
    """Where a held ticket stands. `READY`, `ASK` and `END` are what the next tick acts on."""

    READY = "ready"  # may be granted: fresh, or opened and the ids so far known
    PLACED = "placed"  # a worker is chosen, its open or its grant is under way
    ASK = "ask"  # may run or have run elsewhere: needs an open that the owner answers
    ASKED = "asked"  # that open is under way or stored, the answer is not here
    END = "end"  # has a fault: needs an end entry
    ENDING = "ending"  # the end entry is under way


@dataclass(slots=True, eq=False)
class Held:
    """Times are seconds of the event loop's clock, `queued_s` is what the ticket waited in TICKETS.

    `attempt` is 0 until an open is stored, `deaths` as in `OpenReply`. `unused`: an open was written, or may have been,
    that no worker ever got.
    `held_since` is when it first waited for a better worker than a free one, `placement` why it went where it did.
    `gone`: no longer ours, whatever is still under way for it has no effect. `shelves` are the window's, by phase.
    """

    delivery: Delivery
    ticket: Ticket
    partition: int
    pulled_at: float
    deadline_at: float
    phase: Phase
    queued_s: float = 0.0
    attempt: int = 0
    ids: bytes = b""
    deaths: int = 0
    unused: bool = False
    fault: Fault | None = None
    reply: str = ""
    ask_again_at: float = inf
    asked: int = 0
    gone: bool = False
    held_since: float = inf
    placement: Placement | None = None
    shelves: "Shelves | None" = field(default=None, repr=False)
    _waiting: Waiting | None = field(default=None, repr=False)

    @property
    def sequence(self) -> int:
        return self.delivery.sequence

    @property
    def length(self) -> int:
        """Tokens before the next one: prompt and ids so far."""
        return (len(self.ticket.prompt) + len(self.ids)) // 4

    @property
    def alone(self) -> bool:
        """Whether it has to run alone on its worker."""
        return self.deaths >= ALONE_FROM

    @property
    def fresh(self) -> bool:
        """Whether its first open is still to be written (at the grant)."""
        return self.attempt == 0

    def enter(self, phase: Phase) -> None:
        """The only way into another phase: the window finds tickets by it."""
        if self.shelves is not None:
            del self.shelves[self.phase][self.sequence]
            self.shelves[phase][self.sequence] = self
        self.phase = phase

    def ask(self) -> None:
        """It may run, or have run, somewhere: only the owner can say where the next attempt goes on."""
        self.attempt = 0
        self.ids = b""
        self._waiting = None
        self.ask_again_at = inf  # counts from the moment the next open is stored
        self.enter(Phase.END if self.fault else Phase.ASK)

    def hold(self, now: float) -> None:
        """A better worker will be free in a moment."""
        if self.held_since == inf:
            self.held_since = now
            self._waiting = None

    def place(self, choice: Choice, *, queue: int, known: bool, now: float) -> None:
        """It goes to this worker, before `queue` others; `known`: what that one's cache holds."""
        self.placement = Placement(
            worker=choice.worker,
            cached=choice.cached if known else -1,
            cost=round(choice.cost_s, 6),
            workers=choice.workers,
            rival=choice.rival,
            rival_cached=choice.rival_cached,
            rival_cost=round(choice.rival_cost_s, 6),
            held=round(min(max(now - self.held_since, 0.0), HOLD_S), 6),
            queue=queue,
        )

    def put_back(self) -> None:
        """The chosen worker did not get it."""
        self.enter(Phase.END if self.fault else Phase.READY)

    def end(self, fault: Fault) -> None:
        """Ends it with a fault, as soon as nothing is under way for it; the first fault counts."""
        self.fault = self.fault or fault
        if self.phase not in (Phase.PLACED, Phase.ENDING):
            self.enter(Phase.END)

    def asked_at(self, now: float, patience_s: float) -> None:
        """Its open is stored; every unanswered one doubles the patience, or a slow owner would never catch up."""
        self.ask_again_at = now + min(patience_s * 2**self.asked, LONGEST_ASK_S)
        self.asked += 1

    def answered(self, reply: OpenReply) -> None:
        self.enter(Phase.READY)
        self.attempt, self.ids, self.deaths = reply.attempt, reply.ids, reply.deaths
        self._waiting = None
        self.ask_again_at, self.asked = inf, 0

    def kv_tokens(self, reserve: int) -> int:
        """KV cache to start with: all ids there are, and `reserve` tokens of the answer (fewer if it ends before)."""
        generated = len(self.ids) // 4
        left = max(self.ticket.sampling.max_tokens - generated, 0)
        return self.ticket.prompt_tokens + generated + min(reserve, left)

    def waiting(self, reserve: int) -> Waiting:
        """What a policy sees of it, made once: every tick looks at all that wait."""
        if self._waiting is None:
            self._waiting = Waiting(
                sequence=self.sequence,
                tenant=self.ticket.tenant,
                priority=self.ticket.priority,
                waiting_since=self.pulled_at,
                deadline_at=self.deadline_at,
                prompt_tokens=self.ticket.prompt_tokens,
                kv_tokens=self.kv_tokens(reserve),
                generated_tokens=len(self.ids) // 4,
                block_hashes=self.ticket.block_hashes,
                alone=self.alone,
                held_since=self.held_since,
            )
        return self._waiting

    def open_entry(self, model: str, *, worker: str = "") -> Open:
        """The open of a grant to `worker`; without one, the open that the owner answers on `reply`."""
        return Open(
            key=self.ticket.key,
            choice=self.ticket.choice,
            model=model,
            session=self.ticket.session,
            sequence=self.sequence,
            ack=self.delivery.ack_subject,
            fresh=bool(worker),
            reply="" if worker else self.reply,
            worker=worker,
            replaces=self.unused,
        )

    def end_entry(self, fault: Fault) -> End:
        return End(
            key=self.ticket.key,
            choice=self.ticket.choice,
            session=self.ticket.session,
            fault=fault,
            encoding=self.ticket.answer.encoding,
            ack=self.delivery.ack_subject,
        )

    def granted_to(self, worker: str, now: float) -> Granted:
        return Granted(
            sequence=self.sequence,
            ack_subject=self.delivery.ack_subject,
            worker=worker,
            granted_at=now,
            key=self.ticket.key,
            choice=self.ticket.choice,
            partition=self.partition,
            attempt=self.attempt,
        )

    def grant_item(self, now: float) -> GrantItem:
        return GrantItem(
            ticket=self.ticket,
            attempt=self.attempt,
            ack=self.delivery.ack_subject,
            sequence=self.sequence,
            stored_at=self.delivery.stored_at,
            ids=self.ids,
            schedule=StageTime(self.queued_s, max(now - self.pulled_at, 0.0)),
            deaths=self.deaths,
            placement=self.placement,
        )


Shelves = dict[Phase, dict[int, Held]]
"""Tickets by phase and sequence."""
