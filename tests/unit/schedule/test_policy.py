"""Which ticket goes to which worker."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.policy import PASSED_OVER_S, Candidate, Plan, State, Waiting, most_free


def waiting(sequence: int, *, priority: int = 0, kv_tokens: int = 10, since: float = 0.0) -> Waiting:
    return Waiting(
        sequence=sequence,
        tenant="t",
        priority=priority,
        waiting_since=since,
        deadline_at=1e9,
        prompt_tokens=kv_tokens,
        kv_tokens=kv_tokens,
    )


def plan(tickets: list[Waiting], candidates: list[Candidate], now: float = 0.0) -> Plan:
    return most_free(State(now, tickets, candidates))


def test_lower_priority_value_goes_first_then_arrival() -> None:
    """With one slot free the ticket that goes is the one of the first class, the oldest of it."""
    tickets = [waiting(1, priority=1), waiting(3), waiting(2)]

    assert list(plan(tickets, [Candidate("w", slots=3, kv_tokens=1000)])) == [2, 3, 1]
    assert plan(tickets, [Candidate("w", slots=1, kv_tokens=1000)]) == {2: "w"}


def test_each_goes_where_most_is_free_by_then() -> None:
    """Tickets of one tick are spread: what was placed before counts."""
    workers = [Candidate("a", slots=1, kv_tokens=1000), Candidate("b", slots=3, kv_tokens=1000)]

    assert plan([waiting(n) for n in range(1, 5)], workers) == {1: "b", 2: "b", 3: "a", 4: "b"}


def test_equal_slots_are_told_apart_by_free_cache() -> None:
    """Among workers with equally many free slots the one with the most free KV cache takes the ticket."""
    workers = [Candidate("a", slots=2, kv_tokens=100), Candidate("b", slots=2, kv_tokens=900)]

    assert plan([waiting(1)], workers) == {1: "b"}


def test_a_ticket_goes_where_it_fits() -> None:
    """More free slots are no use where the KV cache is too small for the ticket."""
    workers = [Candidate("a", slots=9, kv_tokens=100), Candidate("b", slots=1, kv_tokens=900)]

    assert plan([waiting(1, kv_tokens=500)], workers) == {1: "b"}


def test_what_fits_nowhere_does_not_hold_up_the_others() -> None:
    """A long prompt waits, short ones behind it go."""
    workers = [Candidate("a", slots=4, kv_tokens=100)]

    assert plan([waiting(1, kv_tokens=500), waiting(2), waiting(3)], workers) == {2: "a", 3: "a"}


def test_room_is_saved_for_a_ticket_that_was_passed_over_for_long() -> None:
    """Short ones do not starve a long one: after a while the worker with the most room takes no more of them."""
    workers = [Candidate("a", slots=4, kv_tokens=400), Candidate("b", slots=4, kv_tokens=100)]
    tickets = [waiting(1, kv_tokens=500), waiting(2), waiting(3)]

    assert plan(tickets, workers, now=PASSED_OVER_S + 1) == {2: "b", 3: "b"}


def test_an_empty_worker_is_offered_what_is_larger_than_its_credits() -> None:
    """Nothing will ever fit better: that worker has to decide."""
    workers = [Candidate("a", slots=4, kv_tokens=100, max_slots=4)]

    assert plan([waiting(1, kv_tokens=500), waiting(2, kv_tokens=500)], workers) == {1: "a"}


candidates = st.lists(
    st.builds(Candidate, worker=st.uuids().map(str), slots=st.integers(0, 5), kv_tokens=st.integers(0, 100)),
    max_size=6,
)
tickets = st.lists(
    st.builds(waiting, st.integers(1, 10_000), priority=st.integers(-2, 2), kv_tokens=st.integers(1, 60)),
    max_size=30,
    unique_by=lambda ticket: ticket.sequence,
)


@given(tickets, candidates, st.floats(0, 10))
def test_credits_are_never_exceeded(waiting: list[Waiting], workers: list[Candidate], now: float) -> None:
    """No worker is given more tickets than slots, nor more KV cache than it has; every ticket goes at most once."""
    chosen = plan(waiting, workers, now)

    size = {ticket.sequence: ticket.kv_tokens for ticket in waiting}
    for worker in workers:
        mine = [sequence for sequence, name in chosen.items() if name == worker.worker]
        assert len(mine) <= worker.slots
        assert sum(size[sequence] for sequence in mine) <= worker.kv_tokens
    assert set(chosen) <= set(size)


@given(tickets, candidates)
def test_nothing_that_fits_stays_behind(waiting: list[Waiting], workers: list[Candidate]) -> None:
    """What was left out would fit nowhere after the plan."""
    chosen = plan(waiting, workers)

    size = {ticket.sequence: ticket.kv_tokens for ticket in waiting}
    for left in set(size) - set(chosen):
        for worker in workers:
            mine = [sequence for sequence, name in chosen.items() if name == worker.worker]
            used = sum(size[sequence] for sequence in mine)
            assert len(mine) == worker.slots or used + size[left] > worker.kv_tokens


# What has to run alone


def busy(worker: str, running: int, slots: int = 8) -> Candidate:
    return Candidate(worker, slots=slots - running, kv_tokens=1000, max_slots=slots, running=running)


def alone(sequence: int, **more: int) -> Waiting:
    return dataclasses.replace(waiting(sequence, **more), alone=True)


def test_what_runs_alone_goes_to_an_idle_worker_and_nothing_goes_there_with_it() -> None:
    """The others of the same tick go elsewhere, although more is free there."""
    workers = [busy("a", 2), busy("idle", 0)]

    assert plan([alone(1), waiting(2), waiting(3)], workers) == {1: "idle", 2: "a", 3: "a"}


def test_without_an_idle_worker_the_least_busy_one_makes_room() -> None:
    """Whatever its free cache is: it begins the ticket with an empty engine."""
    workers = [busy("a", 5), busy("b", 2), Candidate("c", slots=1, kv_tokens=5, max_slots=2, running=1)]

    assert plan([alone(1, kv_tokens=5000)], workers) == {1: "c"}


def test_several_that_run_alone_are_spread() -> None:
    """One a worker; those for whom none is left wait, and hold up nobody."""
    workers = [busy("a", 0), busy("b", 1)]

    assert plan([alone(1), alone(2), alone(3), waiting(4)], workers) == {1: "a", 2: "b"}


def test_what_runs_alone_keeps_its_place_in_the_order() -> None:
    """What comes before it has its worker already; it goes in the next tick. What comes behind it is not asked."""
    workers = [busy("a", 0)]

    assert plan([waiting(1), alone(2)], workers) == {1: "a"}
    assert plan([alone(1), waiting(2)], workers) == {1: "a"}
    assert plan([alone(1, priority=1), waiting(2)], workers) == {2: "a"}


@given(tickets, candidates, st.data())
def test_nothing_shares_a_plan_with_what_runs_alone(
    waiting: list[Waiting], workers: list[Candidate], draw: st.DataObject
) -> None:
    """Its worker is given nothing else; and where a worker was left untouched, no such ticket was left behind."""
    marked = [dataclasses.replace(ticket, alone=draw.draw(st.booleans())) for ticket in waiting]
    chosen = plan(marked, workers)

    for ticket in marked:
        if ticket.alone and ticket.sequence in chosen:
            assert list(chosen.values()).count(chosen[ticket.sequence]) == 1
    untouched = {one.worker for one in workers if one.slots} - set(chosen.values())
    assert not (untouched and any(ticket.alone and ticket.sequence not in chosen for ticket in marked))
