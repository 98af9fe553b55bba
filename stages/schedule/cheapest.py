"""The policy in use: whose turn it is gets the place where it costs least, or waits a moment for a better one."""

from collections import Counter
from enum import Enum

from schemas.kv_events import HASH_BYTES
from stages.schedule.order import Turns
from stages.schedule.placement import Seats
from stages.schedule.policy import Choice, Matches, Plan, State, Waiting

HOLD_S = 2.0
"""How long a ticket waits at most for a place that is predicted to be cheaper, from when it could have gone first."""

LOOKED_AT = 128
"""Tickets that one plan looks at beyond those that it places: a long backlog does not make ticks slow."""

NOTHING: Matches = {}

LEAST_LOOKED_AT = 8
"""Of each tenant, where many wait: one whose tickets fit nowhere does not hide those of the others."""

PLACED_AT = 256
"""Tickets that one plan places: another one follows at once."""

PASSED_OVER_S = 2.0
"""A ticket that fitted nowhere for so long has room kept for it: smaller ones would take it for ever."""


def cheapest(state: State) -> Plan:
    """Order by `order.Turns`, places by `placement.Seats`. What finds its prompt in a cache goes first in its class.

    Only then, in the same plan, the others take what is left: under a backlog every worker goes on with the prompts
    that it has, and the rest wait for up to `HOLD_S` until it is their turn to drive something out.
    """
    planner = _Planner(state)
    left = Counter[str]()
    patience = max(LOOKED_AT // max(len({ticket.tenant for ticket in state.waiting}), 1), LEAST_LOOKED_AT)
    turns = Turns(state.waiting, state.now, state.levels, state.weights)
    looked_at, rank = 0, None
    while planner.seats and looked_at < LOOKED_AT and len(planner.plan.grants) < PLACED_AT:
        ticket = turns.next()
        if ticket is None:
            break
        if turns.rank != rank:
            planner.place_misses()
            rank = turns.rank
        verdict = planner.place(ticket)
        if verdict in (Verdict.PLACED, Verdict.PUT_ASIDE):
            turns.given(ticket)
        looked_at += verdict in (Verdict.PUT_ASIDE, Verdict.LEFT)
        left[ticket.tenant] += verdict is Verdict.LEFT
        if left[ticket.tenant] >= patience:
            turns.skip_line()
            left[ticket.tenant] = 0
    planner.place_misses()
    return planner.plan


SIBLING_BLOCK = 4
"""Prompts that are equal up to this block (from 0) share enough to wait for; templates alone make less equal."""


class Verdict(Enum):
    """What came of one ticket's turn."""

    PLACED = "placed"
    PUT_ASIDE = "put aside"  # it takes what is left over by those whose prompts are cached
    LEFT = "left"  # for another plan
    CLOSED = "closed"  # nobody takes anything like it now: many of these do not hide what comes behind


class _Planner:
    """One plan in the making."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._misses: list[tuple[Waiting, Matches]] = []
        self._kept = False
        self._heads = set[bytes]()
        self.plan = Plan()
        self.seats = Seats(state)

    def place(self, ticket: Waiting) -> Verdict:
        """Its turn has come."""
        if ticket.alone:
            return self._grant(ticket, self.seats.take_whole())
        matches = self._state.matches(ticket) if ticket.block_hashes else NOTHING
        if self.seats.closed_to(ticket, matches):
            return Verdict.CLOSED
        choice = self.seats.best(ticket, matches)
        if choice is None:
            self._passed_over(ticket)
            return Verdict.LEFT
        if self._waits_for_sibling(ticket, choice):
            return Verdict.LEFT
        if ticket.block_hashes and self._state.now - ticket.held_since < HOLD_S:
            return self._take_patiently(ticket, matches, choice)
        return self._take_at_last(ticket, matches, choice)

    def _take_patiently(self, ticket: Waiting, matches: Matches, choice: Choice) -> Verdict:
        """Unless somebody better is free in a moment, or somebody else makes better use of that place."""
        if self.seats.waits_for_better(ticket, matches, choice):
            self.plan.held.append(ticket.sequence)
            return Verdict.LEFT
        if not choice.cached:
            self._misses.append((ticket, matches))
            return Verdict.PUT_ASIDE
        return self._take(ticket, choice)

    def _take_at_last(self, ticket: Waiting, matches: Matches, choice: Choice) -> Verdict:
        """It has waited long enough, or never has to; those whose turn came before it have theirs first."""
        if self._misses and not choice.cached:
            self.place_misses()
            found = self.seats.best(ticket, matches) if self.seats else None
            if found is None:
                return Verdict.LEFT
            choice = found
        return self._take(ticket, choice)

    def _waits_for_sibling(self, ticket: Waiting, choice: Choice) -> bool:
        """Whether one that begins alike was placed in this plan: in the next one its blocks are known to be coming."""
        return choice.cached <= SIBLING_BLOCK * self._state.block_tokens and _head(ticket) in self._heads

    def place_misses(self) -> None:
        """What is left goes to those that no cache helps."""
        for ticket, matches in self._misses:
            choice = self.seats.best(ticket, matches) if self.seats else None
            if choice is None or self._waits_for_sibling(ticket, choice):
                self.plan.held.append(ticket.sequence)
            else:
                self._take(ticket, choice)
        self._misses.clear()

    def _take(self, ticket: Waiting, choice: Choice) -> Verdict:
        self.seats.take(choice, ticket)
        if head := _head(ticket):
            self._heads.add(head)
        return self._grant(ticket, choice)

    def _grant(self, ticket: Waiting, choice: Choice | None) -> Verdict:
        if choice is None:
            return Verdict.LEFT
        self.plan.grants[ticket.sequence] = choice
        return Verdict.PLACED

    def _passed_over(self, ticket: Waiting) -> None:
        if not self._kept and self._state.now - ticket.waiting_since > PASSED_OVER_S:
            self._kept = self.seats.keep_room_for(ticket)


def _head(ticket: Waiting) -> bytes:
    """The hash of a block close to the beginning, which covers what is before it; empty for short prompts."""
    return ticket.block_hashes[SIBLING_BLOCK * HASH_BYTES : (SIBLING_BLOCK + 1) * HASH_BYTES]
