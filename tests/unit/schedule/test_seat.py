"""What a ticket costs on one worker."""

import pytest

from stages.schedule.policy import Candidate
from stages.schedule.seat import MISS_WEIGHT, PREFILL_S, REGRANT_S, Seat


def seat(
    *,
    max_slots: int = 0,
    prefill_tokens: int = 0,
    step_tokens: int = 0,
    base_s: float = 0.01,
    prefill_s: float = 0.00005,
    free_in_s: float = 0.0,
) -> Seat:
    return Seat(
        Candidate(
            "w",
            slots=4,
            kv_tokens=1000,
            max_slots=max_slots,
            prefill_tokens=prefill_tokens,
            step_tokens=step_tokens,
            base_s=base_s,
            prefill_s=prefill_s,
            free_in_s=free_in_s,
        )
    )


def test_load_grows_with_what_is_taken() -> None:
    """Prompts to compute and sequences that decode both count, as soon as they are placed."""
    one = seat()
    loads = [one.load_s]
    for missing in (0, 100, 5):
        one.take(100, missing)
        loads.append(one.load_s)

    assert loads[0] == 0
    assert loads == sorted(set(loads))
    assert (one.slots, one.kv_tokens, one.tokens, one.taken, one.decoding) == (1, 700, 105, 3, 3)


def test_a_token_costs_its_share_of_a_step() -> None:
    """Steps that compute nothing but prompts have a base, too."""
    small, large = (seat(prefill_tokens=1000, step_tokens=size, base_s=0.1) for size in (100, 1000))
    assert small.load_s - large.load_s == pytest.approx(1000 * 0.1 * (1 / 100 - 1 / 1000))


def test_a_block_that_is_computed_drives_out_another() -> None:
    """Places are compared by more than the time to the first token."""
    one = seat(prefill_s=0.001)
    assert one.worth_s(100) - one.worth_s(0) == pytest.approx(MISS_WEIGHT * 0.1)
    assert one.first_token_s(100) - one.first_token_s(0) == pytest.approx(0.1)


def test_when_it_takes_something_again() -> None:
    """Full: when a sequence ends. Else when its grant is answered, or what it has to prefill has become less."""
    one = seat(free_in_s=3.0, prefill_s=0.001, prefill_tokens=5000)
    assert one.opens_in_s() == pytest.approx(5.0 - PREFILL_S)
    for _ in range(4):
        one.take(1, 1)
    assert one.opens_in_s() == 3.0
    assert seat(free_in_s=3.0).opens_in_s() == REGRANT_S


def test_only_an_empty_worker_holds_more_than_its_credits() -> None:
    """And only the first of a plan."""
    one = seat(max_slots=4)
    assert one.holds(5000)
    one.take(10, 10)
    assert not one.holds(991)
    assert one.holds(990)
