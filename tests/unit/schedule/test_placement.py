"""Where a prompt goes whose beginning lies in caches."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.cheapest import HOLD_S
from stages.schedule.policy import Candidate, Waiting
from stages.schedule.seat import BURDEN_TOKENS, MISS_WEIGHT, REGRANT_S
from tests.unit.schedule.states import BLOCK, chat, places, plan, waiting, worker

PROMPT = range(1000, 1100)
"""The blocks of a prompt of 1600 tokens and a few."""

MISS_TOKENS = int(MISS_WEIGHT * len(PROMPT) * BLOCK)
"""A queue of so many tokens is as bad as to compute all of these blocks."""


def test_a_prompt_goes_where_its_prefix_is_though_another_worker_is_idle() -> None:
    """As long as what waits there costs less than to compute it anew."""
    workers = [worker("has it", prefill=MISS_TOKENS - 50), worker("idle")]

    choice = plan([chat(1, PROMPT)], workers, caches={"has it": PROMPT}).grants[1]
    assert (choice.worker, choice.cached) == ("has it", len(PROMPT) * BLOCK)


def test_a_prompt_leaves_its_prefix_where_the_queue_there_costs_more() -> None:
    """Computed twice it is there sooner."""
    workers = [worker("has it", prefill=MISS_TOKENS + 50), worker("idle")]

    choice = plan([chat(1, PROMPT)], workers, caches={"has it": PROMPT}).grants[1]
    assert (choice.worker, choice.cached) == ("idle", 0)


def test_what_runs_there_counts_as_work_too() -> None:
    """Every decoding sequence makes each step longer: a full batch is left for an empty one, a small one is not."""
    ratio = worker("").prefill_s / worker("").decode_s
    as_bad = int(MISS_WEIGHT * BLOCK * 10 * ratio / BURDEN_TOKENS)
    for running, expected in ((as_bad - 1, "has it"), (as_bad + 1, "idle")):
        workers = [worker("has it", running=running), worker("idle")]
        assert places(plan([chat(1, PROMPT[:10])], workers, caches={"has it": PROMPT})) == {1: expected}


def test_the_longest_prefix_wins_among_equals() -> None:
    """Who has more of the prompt computes less of it."""
    workers = [worker("a"), worker("b"), worker("c")]
    caches = {"a": PROMPT[:10], "b": PROMPT[:60], "c": PROMPT[:59]}

    choice = plan([chat(1, PROMPT)], workers, caches=caches).grants[1]
    assert (choice.worker, choice.cached, choice.rival, choice.rival_cached) == ("b", 60 * BLOCK, "c", 59 * BLOCK)


def test_a_choice_names_the_next_best_and_what_both_cost() -> None:
    """In seconds to the first token: what is prefilled before, what is missing, one step with those that run."""
    a, b = worker("a", prefill=30, running=2), worker("b", prefill=70, running=3)
    choice = plan([waiting(1, tokens=100)], [b, a]).grants[1]

    token_s = a.prefill_s + a.base_s / a.step_tokens
    assert (choice.worker, choice.rival, choice.workers) == ("a", "b", 2)
    assert choice.cost_s == pytest.approx(a.base_s + 130 * token_s + 2 * a.decode_s)
    assert choice.rival_cost_s == pytest.approx(b.base_s + 170 * token_s + 3 * b.decode_s)


def test_without_another_worker_there_is_no_rival() -> None:
    """One that is full, or shut, is none either."""
    choice = plan([waiting(1)], [worker("a"), worker("b", slots=0), worker("c", opened=False)]).grants[1]

    assert (choice.workers, choice.rival, choice.rival_cached, choice.rival_cost_s) == (1, "", 0, 0.0)


@given(tokens=st.integers(1, 10 * BLOCK), blocks=st.integers(1, 12))
def test_the_last_token_is_never_claimed_to_be_cached(tokens: int, blocks: int) -> None:
    """It has to be computed for the next one to be known: the block that it fills is computed again, as in vLLM."""
    ticket = waiting(1, tokens=tokens, blocks=PROMPT[: max(tokens // BLOCK, 1)])
    choice = plan([ticket], [worker("a")], caches={"a": PROMPT[:blocks]}).grants[1]

    assert choice.cached == min(blocks, tokens // BLOCK or 1, (tokens - 1) // BLOCK) * BLOCK
    assert choice.cached < tokens


def test_a_cached_prefix_needs_no_room() -> None:
    """A prompt larger than what is free goes where enough of it is there already."""
    ticket = chat(1, PROMPT, more=10)
    workers = [worker("a", kv_tokens=10), worker("b", kv_tokens=9)]

    assert places(plan([ticket], workers, caches={"a": PROMPT, "b": PROMPT})) == {1: "a"}
    assert places(plan([ticket], [workers[1]], caches={"b": PROMPT})) == {}


def test_workers_that_are_gone_do_not_matter() -> None:
    """A cache may be known a moment longer than its worker."""
    assert places(plan([chat(1, PROMPT)], [worker("a")], caches={"gone": PROMPT})) == {1: "a"}


# Waiting for a better place


@pytest.mark.parametrize(
    "better",
    [worker("better", slots=0, free_in_s=0.02), worker("better", opened=False)],
    ids=["an end is near", "a grant is under way"],
)
def test_a_ticket_is_held_for_a_better_worker_for_a_while(better: Candidate) -> None:
    """Though another could take it; after `HOLD_S` it goes anywhere."""
    workers, caches = [worker("other"), better], {"better": PROMPT}

    assert REGRANT_S < 0.02 < MISS_TOKENS * workers[0].prefill_s
    for held_since in (float("inf"), 10.0):
        made = plan([chat(1, PROMPT, held_since=held_since)], workers, 10 + HOLD_S / 2, caches=caches)
        assert (made.held, made.grants) == ([1], {})
    made = plan([chat(1, PROMPT, held_since=10.0)], workers, 10 + HOLD_S, caches=caches)
    assert (made.held, places(made)) == ([], {1: "other"})


def test_nothing_is_held_for_what_comes_too_late() -> None:
    """A worker that is full for longer than the prompt takes elsewhere is no better one."""
    late = worker("late", slots=0, free_in_s=2 * MISS_TOKENS * worker("").prefill_s)

    made = plan([chat(1, PROMPT)], [worker("other"), late], caches={"late": PROMPT})
    assert (made.held, places(made)) == ([], {1: "other"})


def test_a_ticket_without_hashes_is_never_held() -> None:
    """No cache can help it, whoever is free soon."""
    made = plan([waiting(1, tokens=2000)], [worker("other"), worker("soon", slots=0)], caches={"soon": PROMPT})
    assert (made.held, places(made)) == ([], {1: "other"})


def test_hits_go_before_misses_in_one_plan() -> None:
    """Who finds its prompt cached goes first; what it leaves goes to the others in the same plan."""
    tickets = [chat(1, range(10)), chat(2, PROMPT), chat(3, range(20, 30))]
    caches = {"a": PROMPT}

    made = plan(tickets, [worker("a", slots=1)], caches=caches)
    assert places(made) == {2: "a"}
    assert made.held[0] == 1
    made = plan(tickets, [worker("a", slots=2)], caches=caches)
    assert (list(made.grants), made.held) == ([2, 1], [3])
    assert list(plan(tickets, [worker("a", slots=3)], caches=caches).grants) == [2, 1, 3]


def test_a_miss_that_was_held_for_long_goes_in_its_turn() -> None:
    """Hits do not starve it."""
    tickets = [chat(1, range(10), held_since=0.0), chat(2, PROMPT)]

    made = plan(tickets, [worker("a", slots=1)], HOLD_S, caches={"a": PROMPT})
    assert places(made) == {1: "a"}


def test_tenants_share_a_plan_of_misses_too() -> None:
    """Fairness does not depend on caches."""
    tickets = [own_prompt(number, tenant="first") for number in range(1, 6)]
    tickets += [own_prompt(number, tenant="second") for number in range(6, 11)]

    made = plan(tickets, [worker("a", slots=4)])
    assert sum(sequence > 5 for sequence in made.grants) == 2


def test_a_class_goes_before_the_next_one_whatever_is_cached() -> None:
    """A batch that always hits, or has no hashes, does not take the slots from those that come before it."""
    first = own_prompt(1)
    for other in (own_prompt(2, priority=1), waiting(2, priority=1), waiting(2, priority=1, alone=True)):
        made = plan([first, other], [worker("a", slots=1)], caches={"a": range(200, 204)})
        assert places(made) == {1: "a"}


def own_prompt(number: int, *, tenant: str = "t", priority: int = 0) -> Waiting:
    """One that shares nothing with the others."""
    blocks = range(100 * number, 100 * number + 4)
    return waiting(number, tenant=tenant, priority=priority, tokens=len(blocks) * BLOCK + 8, blocks=blocks)


def test_what_was_held_for_long_does_not_overtake_a_turn() -> None:
    """Neither hits: the tenant whose turn it is goes first, also with a ticket that has just come."""
    old = [replace(own_prompt(number, tenant="loud"), held_since=0.0) for number in range(1, 5)]
    fresh = own_prompt(5, tenant="quiet")

    made = plan([*old, fresh], [worker("a", slots=1)], HOLD_S, levels={"loud": 1e6})
    assert places(made) == {5: "a"}


def test_prompts_that_begin_alike_do_not_go_to_different_workers_at_once() -> None:
    """One of them is computed; in the next plan the others know where."""
    tickets = [chat(number, PROMPT) for number in range(1, 4)]

    made = plan(tickets, [worker("a"), worker("b")])
    assert len(made.grants) == 1


def test_small_workers_that_may_not_take_it_do_not_hide_the_others() -> None:
    """The least busy ones keep their last slot for other tenants, or compute a long prompt already: others do not."""
    small = [worker(f"s{number}", slots=1, max_slots=32) for number in range(6)]
    busy = [worker(f"b{number}", slots=8, max_slots=64, running=56) for number in range(3)]
    made = plan([waiting(1, tenant="loud")], [*small, *busy], levels={"loud": 1e6}, ahead=["loud"])
    assert places(made)[1].startswith("b")

    computing = [worker(f"s{number}", prefill=200) for number in range(6)]
    idle = [worker(f"b{number}", running=10**6) for number in range(18)]
    assert places(plan([waiting(1, tokens=300)], [*computing, *idle], long_tokens=200))[1].startswith("b")


def test_a_worker_without_work_is_free_whatever_its_pace() -> None:
    """Of one that names neither its steps nor a pace of prefill."""
    assert places(plan([waiting(1)], [replace(worker("a", step_tokens=0), prefill_s=0.0)])) == {1: "a"}
