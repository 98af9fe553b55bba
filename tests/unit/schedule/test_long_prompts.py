"""Long prompts do not hold up short ones."""

import pytest

from stages.schedule.cheapest import LOOKED_AT, PASSED_OVER_S
from stages.schedule.policy import Candidate, Waiting
from stages.schedule.seat import PREFILL_S, PREFILL_STEPS
from tests.unit.schedule.states import BLOCK, chat, places, plan, waiting, worker

LONG = 1000
"""More than so much to compute makes a long one."""


def long(sequence: int) -> Waiting:
    return waiting(sequence, tokens=LONG + 1)


def names(count: int) -> list[str]:
    return [f"w{number}" for number in range(count)]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 7, 8, 13])
def test_a_quarter_of_the_workers_stays_without_a_long_prompt(workers: int) -> None:
    """Or one, of several; the others compute one each. A single worker takes one at a time."""
    made = plan([long(number) for number in range(30)], [worker(name) for name in names(workers)], long_tokens=LONG)

    chosen = list(places(made).values())
    assert len(chosen) == len(set(chosen)) == max(workers - max(workers // 4, 1), 1)


def test_what_is_being_computed_counts() -> None:
    """A worker with a long prompt takes no other, and counts among those that may have one."""
    workers = [worker("a", prefill=LONG), worker("b", prefill=LONG), worker("c"), worker("d")]
    made = plan([long(1), long(2)], workers, long_tokens=LONG)
    assert len(made.grants) == 1
    assert places(made)[1] in {"c", "d"}

    assert plan([long(1)], [*workers[:2], worker("c", prefill=LONG), worker("d")], long_tokens=LONG).grants == {}
    assert plan([long(1)], [worker("a", prefill=LONG)], long_tokens=LONG).grants == {}


def test_short_prompts_go_on_beside_a_long_one() -> None:
    """Also to the one worker that computes it."""
    made = plan([long(1), waiting(2), long(3), waiting(4)], [worker("a")], long_tokens=LONG)
    assert list(made.grants) == [1, 2, 4]


def test_many_long_prompts_do_not_hide_what_waits_behind_them() -> None:
    """However many they are."""
    many = [long(number) for number in range(2 * LOOKED_AT)]
    short = waiting(2 * LOOKED_AT)

    made = plan([*many, short], [worker("a")], PASSED_OVER_S + 1, long_tokens=LONG)
    assert list(made.grants) == [0, short.sequence]


CACHED = range(2 * LONG // BLOCK)


def test_a_prompt_that_is_cached_is_not_long() -> None:
    """What has to be computed counts, not its length."""
    made = plan([chat(1, CACHED), chat(2, CACHED)], [worker("a")], caches={"a": CACHED}, long_tokens=LONG)
    assert places(made) == {1: "a", 2: "a"}


def test_a_prompt_that_is_cached_goes_on_while_a_long_one_is_computed() -> None:
    """A conversation with a long history does not wait for somebody else's long prompt."""
    workers = [worker("a"), worker("b", prefill=LONG)]
    made = plan([chat(1, CACHED)], workers, caches={"a": CACHED}, long_tokens=LONG)
    assert places(made) == {1: "a"}


@pytest.mark.parametrize("count", [1, 2 * LOOKED_AT])
def test_long_prompts_that_no_free_worker_may_take_hold_up_nobody(count: int) -> None:
    """Two workers are full, the third computes a long prompt: it takes short ones nevertheless."""
    workers = [worker("full", slots=0), worker("full too", slots=0), worker("a", prefill=LONG)]
    tickets = [*(long(number) for number in range(count)), waiting(count)]
    since = PASSED_OVER_S + 1 if count == 1 else 0.0

    assert places(plan(tickets, workers, since, long_tokens=LONG)) == {count: "a"}


def test_no_room_is_saved_for_what_waits_for_prompts_to_be_computed() -> None:
    """A worker too small for it is no use to it: the others go on there."""
    workers = [limited("large", 10**6, step_tokens=1, prefill_s=0.001), worker("small", kv_tokens=100)]
    tickets = [waiting(1, tokens=500), waiting(2)]

    assert places(plan(tickets, workers, PASSED_OVER_S + 1)) == {2: "small"}


def limited(name: str, tokens: int, *, step_tokens: int, prefill_s: float) -> Candidate:
    return Candidate(
        name, slots=8, kv_tokens=10**6, prefill_tokens=tokens, step_tokens=step_tokens, prefill_s=prefill_s
    )


@pytest.mark.parametrize(
    ("step_tokens", "prefill_s"), [(4096, 1.0), (1, PREFILL_S / 500), (0, PREFILL_S / 500), (512, 0.0)]
)
def test_a_worker_with_enough_to_prefill_gets_nothing_more(step_tokens: int, prefill_s: float) -> None:
    """Some steps, or some time, whichever is more: what waits in an engine can no longer be moved."""
    limit = PREFILL_STEPS * step_tokens
    if prefill_s:
        limit = max(limit, round(PREFILL_S / prefill_s))
    for tokens, taken in ((limit, 0), (limit - 1, 1)):
        candidate = limited("a", tokens, step_tokens=step_tokens, prefill_s=prefill_s)
        assert len(plan([waiting(1), waiting(2)], [candidate]).grants) == taken


def test_what_a_plan_places_counts_towards_the_limit() -> None:
    """A burst fills an engine up to its limit, and waits here beyond it."""
    candidate = limited("a", 0, step_tokens=100, prefill_s=1.0)
    size = 50

    made = plan([waiting(number, tokens=size) for number in range(8 * PREFILL_STEPS)], [candidate])
    assert len(made.grants) == min(8, PREFILL_STEPS * 100 // size)
