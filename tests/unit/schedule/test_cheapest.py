"""Whose turn it is, and what happens to those that fit nowhere or have to run alone."""

import dataclasses

from stages.schedule.cheapest import LOOKED_AT, PASSED_OVER_S
from stages.schedule.policy import Candidate, Waiting
from stages.schedule.seat import RESERVED
from tests.unit.schedule.states import places, plan, waiting, worker


def test_lower_priority_value_goes_first_then_arrival() -> None:
    """With one slot free the ticket that goes is the one of the first class, the oldest of it."""
    tickets = [waiting(1, priority=1), waiting(3), waiting(2)]

    assert list(plan(tickets, [worker("w", slots=3)]).grants) == [2, 3, 1]
    assert places(plan(tickets, [worker("w", slots=1)])) == {2: "w"}


def test_tenants_share_one_plan_by_weight() -> None:
    """Of nine slots a tenant of weight 2 gets six, though all tickets of the other came first."""
    tickets = [waiting(number, tenant="small") for number in range(1, 11)]
    tickets += [waiting(number, tenant="big") for number in range(11, 21)]
    made = plan(tickets, [worker("w", slots=9)], weights={"big": 2.0})

    assert sum(sequence > 10 for sequence in made.grants) == 6


def test_who_is_behind_goes_first() -> None:
    """A tenant that was given more than the other waits until that one has as much."""
    tickets = [waiting(1, tenant="ahead"), waiting(2, tenant="behind"), waiting(3, tenant="behind")]

    assert list(plan(tickets, [worker("w", slots=2)], levels={"ahead": 100.0}).grants) == [2, 3]


def test_who_is_far_ahead_leaves_the_last_slots_to_others() -> None:
    """However much it asks for, and without hiding what others ask for behind it."""
    kept = 3
    greedy = [waiting(number, tenant="greedy") for number in range(2 * LOOKED_AT)]
    other = waiting(2 * LOOKED_AT, tenant="other")
    free = worker("w", slots=kept + 1, max_slots=kept * RESERVED)

    assert list(plan(greedy, [free]).grants) == [0, 1, 2, 3]
    assert list(plan(greedy, [free], ahead=["greedy"]).grants) == [0]
    assert list(plan([*greedy, other], [free], ahead=["greedy"]).grants) == [0, other.sequence]


def test_the_tickets_of_one_plan_are_spread() -> None:
    """What was placed before counts: equal workers get equally much."""
    made = plan([waiting(number) for number in range(1, 7)], [worker(name) for name in "abc"])

    assert sorted(places(made).values()) == ["a", "a", "b", "b", "c", "c"]


def test_a_ticket_goes_where_it_fits() -> None:
    """More free slots are no use where the KV cache is too small for the ticket."""
    workers = [worker("a", slots=9, kv_tokens=100), worker("b", slots=1, kv_tokens=900, running=7)]

    assert places(plan([waiting(1, tokens=500)], workers)) == {1: "b"}


def test_what_fits_nowhere_does_not_hold_up_the_others() -> None:
    """A large request waits, small ones behind it go."""
    tickets = [waiting(1, tokens=500), waiting(2), waiting(3)]

    assert places(plan(tickets, [worker("a", kv_tokens=100)])) == {2: "a", 3: "a"}


def test_a_plan_looks_at_so_many_that_it_cannot_place() -> None:
    """A backlog of what fits nowhere does not make ticks slow: what lies deeper has its turn later."""
    large = [waiting(number, tokens=500) for number in range(LOOKED_AT)]

    assert plan([*large, waiting(LOOKED_AT)], [worker("a", kv_tokens=100)]).grants == {}
    assert places(plan([*large[1:], waiting(LOOKED_AT)], [worker("a", kv_tokens=100)])) == {LOOKED_AT: "a"}


def test_room_is_saved_for_a_ticket_that_was_passed_over_for_long() -> None:
    """Small ones do not starve a large one: after a while the worker with the most room takes no more of them."""
    workers = [worker("a", kv_tokens=400), worker("b", kv_tokens=100)]
    tickets = [waiting(1, tokens=500), waiting(2), waiting(3)]

    assert set(places(plan(tickets, workers, PASSED_OVER_S - 0.1)).values()) == {"a", "b"}
    assert places(plan(tickets, workers, PASSED_OVER_S + 0.1)) == {2: "b", 3: "b"}


def test_room_is_saved_on_one_worker_at_most() -> None:
    """However many were passed over, the others go on."""
    workers = [worker("a", kv_tokens=400), worker("b", kv_tokens=300), worker("c", kv_tokens=200)]
    tickets = [waiting(number, tokens=500) for number in range(1, 5)] + [waiting(5), waiting(6)]

    assert places(plan(tickets, workers, PASSED_OVER_S + 1)) == {5: "b", 6: "c"}


def test_an_empty_worker_is_offered_what_is_larger_than_its_credits() -> None:
    """Nothing will ever fit better: that worker has to decide."""
    workers = [worker("a", slots=4, kv_tokens=100, max_slots=4)]

    assert places(plan([waiting(1, tokens=500), waiting(2, tokens=500)], workers)) == {1: "a"}


def test_what_is_not_open_or_full_gets_nothing() -> None:
    """It is only there to be compared with."""
    workers = [worker("granted just now", opened=False), worker("full", slots=0), worker("w", running=20)]

    assert places(plan([waiting(1)], workers)) == {1: "w"}
    assert plan([waiting(1)], workers[:2]).grants == {}
    assert plan([waiting(1)], []).grants == {}


# What has to run alone


def busy(name: str, running: int, slots: int = 8) -> Candidate:
    return worker(name, slots=slots - running, kv_tokens=1000, max_slots=slots, running=running)


def alone(sequence: int, *, priority: int = 0, tokens: int = 10) -> Waiting:
    return dataclasses.replace(waiting(sequence, priority=priority, tokens=tokens), alone=True)


def test_what_runs_alone_goes_to_an_idle_worker_and_nothing_goes_there_with_it() -> None:
    """The others of the same tick go elsewhere, although more is free there."""
    workers = [busy("a", 2), busy("idle", 0)]

    assert places(plan([alone(1), waiting(2), waiting(3)], workers)) == {1: "idle", 2: "a", 3: "a"}


def test_without_an_idle_worker_the_least_busy_one_makes_room() -> None:
    """Whatever its free cache is: it begins the ticket with an empty engine."""
    workers = [busy("a", 5), busy("b", 2), worker("c", slots=1, kv_tokens=5, max_slots=2, running=1)]

    assert places(plan([alone(1, tokens=5000)], workers)) == {1: "c"}


def test_several_that_run_alone_are_spread() -> None:
    """One a worker; those for whom none is left wait, and hold up nobody."""
    workers = [busy("a", 0), busy("b", 1)]

    assert places(plan([alone(1), alone(2), alone(3), waiting(4)], workers)) == {1: "a", 2: "b"}


def test_what_runs_alone_keeps_its_place_in_the_order() -> None:
    """What comes before it has its worker already; it goes in the next tick. What comes behind it is not asked."""
    workers = [busy("a", 0)]

    assert places(plan([waiting(1), alone(2)], workers)) == {1: "a"}
    assert places(plan([alone(1), waiting(2)], workers)) == {1: "a"}
    assert places(plan([alone(1, priority=1), waiting(2)], workers)) == {2: "a"}


def test_many_that_fit_nowhere_do_not_hide_another_tenant() -> None:
    """Their tenant was given nothing and stays first in line: the others have their turns all the same."""
    large = [waiting(number, tenant="a", tokens=30_000) for number in range(3 * LOOKED_AT)]
    small = waiting(1000, tenant="b")

    made = plan([*large, small], [worker("w", kv_tokens=20_000)], levels={"b": 1.0})
    assert places(made) == {1000: "w"}
