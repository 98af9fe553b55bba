"""Whatever the state of a moment, a plan keeps to what workers have and what tickets need."""

import dataclasses
from collections.abc import Iterator
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from stages.schedule.cheapest import PASSED_OVER_S, cheapest
from stages.schedule.policy import Candidate, Choice, Matches, Plan, State, Waiting
from stages.schedule.seat import PREFILL_S, PREFILL_STEPS, RESERVED
from tests.unit.schedule.states import BLOCK, NO_LIMIT, waiting

LONG = 150
WORKERS = [f"w{number}" for number in range(7)]

tickets = st.lists(
    st.builds(
        waiting,
        st.integers(1, 10_000),
        tenant=st.sampled_from("abc"),
        priority=st.integers(-2, 2),
        tokens=st.integers(1, 60) | st.integers(1, 300),
        since=st.floats(0, 10),
        deadline=st.floats(0, 100),
        blocks=st.lists(st.integers(1, 9), max_size=3),
        alone=st.sampled_from([False, False, False, True]),
        held_since=st.sampled_from([inf, 5.0, 9.0]),
    ),
    max_size=40,
    unique_by=lambda ticket: ticket.sequence,
)
candidates = st.lists(
    st.builds(
        Candidate,
        worker=st.sampled_from(WORKERS),
        slots=st.integers(0, 5),
        kv_tokens=st.integers(0, 400),
        max_slots=st.sampled_from([0, 5, 3 * RESERVED]),
        running=st.integers(0, 9),
        step_tokens=st.sampled_from([0, 100, 10_000]),
        open=st.sampled_from([True, True, True, False]),
        prefill_tokens=st.integers(0, 2 * LONG),
        prefill_s=st.sampled_from([0.0, 0.00005, 0.001]),
        free_in_s=st.floats(0, 1),
    ),
    max_size=len(WORKERS),
    unique_by=lambda one: one.worker,
)
found = st.dictionaries(st.sampled_from([*WORKERS, "gone"]), st.integers(1, 30), max_size=4)


@st.composite
def states(draw: st.DrawFn, now: float = 10.0, long_tokens: int = LONG) -> State:
    """Caches hold anything, also more than a prompt is long, and on workers that are no candidates."""
    matches = draw(st.lists(found, min_size=1, max_size=4))
    return State(
        now,
        draw(tickets),
        draw(candidates),
        draw(st.dictionaries(st.sampled_from("abc"), st.floats(0, 1000))),
        {"c": 2.5},
        lambda ticket: matches[ticket.sequence % len(matches)],
        BLOCK,
        long_tokens,
        frozenset(draw(st.sets(st.sampled_from("abc")))),
    )


class Replay:
    """A plan, grant by grant, with what is left of every worker before each."""

    def __init__(self, state: State, plan: Plan) -> None:
        self._state, self._plan = state, plan
        self.tickets = {ticket.sequence: ticket for ticket in state.waiting}
        self.left = {one.worker: one for one in state.candidates}
        self.longs = sum(one.prefill_tokens >= state.long_tokens for one in state.candidates)

    def grants(self) -> Iterator[tuple[Waiting, Choice]]:
        for sequence, choice in self._plan.grants.items():
            ticket = self.tickets[sequence]
            yield ticket, choice
            self._take(ticket, choice)

    def fits(self, ticket: Waiting) -> bool:
        """Whether any worker could take it, where it is not long."""
        return any(self.holds(one, ticket, self.cached(ticket, one.worker)) for one in self.left.values())

    def holds(self, one: Candidate, ticket: Waiting, cached: int) -> bool:
        limit = max(PREFILL_STEPS * one.step_tokens, PREFILL_S / one.prefill_s if one.prefill_s else 0)
        if not one.open or one.slots <= 0 or one.prefill_tokens >= max(limit, 1):
            return False
        if ticket.tenant in self._state.ahead and not ticket.alone and one.slots <= one.max_slots // RESERVED:
            return False
        return ticket.alone or ticket.kv_tokens - cached <= one.kv_tokens or one.slots == one.max_slots

    def cached(self, ticket: Waiting, worker: str) -> int:
        matches: Matches = self._state.matches(ticket) if ticket.block_hashes else {}
        return min(matches.get(worker, 0), (ticket.length - 1) // BLOCK) * BLOCK

    def _take(self, ticket: Waiting, choice: Choice) -> None:
        one = self.left[choice.worker]
        tokens = one.prefill_tokens + ticket.length - choice.cached
        self.longs += tokens >= self._state.long_tokens > one.prefill_tokens and not ticket.alone
        self.left[choice.worker] = dataclasses.replace(
            one,
            slots=one.slots - 1,
            kv_tokens=one.kv_tokens - ticket.kv_tokens + choice.cached,
            prefill_tokens=tokens,
            open=one.open and not ticket.alone,
        )


@settings(max_examples=300, deadline=None)
@given(states())
def test_no_worker_is_given_what_it_has_no_room_for(state: State) -> None:
    """Slots, KV cache, prefill; none that is not open; no last slot for whoever is ahead; what is cached is cached."""
    replay = Replay(state, cheapest(state))
    for ticket, choice in replay.grants():
        assert choice.cached in ({0} if ticket.alone else {replay.cached(ticket, choice.worker)})
        assert replay.holds(replay.left[choice.worker], ticket, choice.cached)


@settings(max_examples=200, deadline=None)
@given(states())
def test_every_ticket_has_one_fate(state: State) -> None:
    """Granted, held or left; none twice and none that nobody asked about; only those with hashes are held."""
    plan = cheapest(state)
    by_sequence = {ticket.sequence: ticket for ticket in state.waiting}

    assert set(plan.grants) <= set(by_sequence)
    assert len(plan.held) == len(set(plan.held) - set(plan.grants))
    assert all(by_sequence[sequence].block_hashes and not by_sequence[sequence].alone for sequence in plan.held)


@settings(max_examples=200, deadline=None)
@given(states())
def test_nothing_shares_a_plan_with_what_runs_alone(state: State) -> None:
    """Its worker is given nothing else."""
    plan = cheapest(state)
    chosen = [choice.worker for choice in plan.grants.values()]
    for ticket in state.waiting:
        if ticket.alone and ticket.sequence in plan.grants:
            assert chosen.count(plan.grants[ticket.sequence].worker) == 1


@settings(max_examples=200, deadline=None)
@given(states())
def test_long_prompts_leave_workers_to_the_others(state: State) -> None:
    """One a worker at most, and none more than may have one."""
    workers = len(state.candidates)
    allowed = max(workers - max(workers // 4, 1), 1)
    replay = Replay(state, cheapest(state))
    for ticket, choice in replay.grants():
        if ticket.length - choice.cached > LONG and not ticket.alone:
            assert replay.left[choice.worker].prefill_tokens < LONG
            assert replay.longs < allowed


@settings(max_examples=300, deadline=None)
@given(states(now=PASSED_OVER_S, long_tokens=LONG))
def test_a_better_class_is_left_out_only_where_it_fits_nowhere(state: State) -> None:
    """Nothing goes before a ticket of a better class that is neither alone, nor held, nor long, and could go."""
    plan = cheapest(state)
    left = [
        ticket
        for ticket in state.waiting
        if not (ticket.alone or ticket.sequence in plan.grants or ticket.sequence in plan.held or ticket.length > LONG)
    ]
    replay = Replay(state, plan)
    for ticket, _ in replay.grants():
        for other in left:
            assert other.priority >= ticket.priority or not replay.fits(other)


@settings(max_examples=200, deadline=None)
@given(states(now=PASSED_OVER_S, long_tokens=NO_LIMIT))
def test_nothing_that_fits_stays_behind(state: State) -> None:
    """What was left out would fit nowhere after the plan, unless it waits for a better place."""
    plan = cheapest(state)
    replay = Replay(state, plan)
    for _ in replay.grants():
        pass
    untouched = {one.worker for one in state.candidates} - {choice.worker for choice in plan.grants.values()}
    for ticket in state.waiting:
        if ticket.sequence in plan.grants or ticket.sequence in plan.held:
            continue
        if ticket.alone:
            assert not any(replay.holds(replay.left[worker], ticket, 0) for worker in untouched)
        else:
            assert not replay.fits(ticket)
