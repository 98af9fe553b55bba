"""What counts as a long prompt."""

from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.lengths import MEMORY, TIMES, Lengths


def of(*lengths: int) -> Lengths:
    found = Lengths()
    for tokens in lengths:
        found.came(tokens)
    return found


def test_long_is_many_times_the_usual() -> None:
    """The usual length shows with the first prompt, and follows when others come."""
    assert of(500).long_tokens(0) == int(TIMES * 500) or of(500).long_tokens(0) == int(TIMES * 500) - 1
    assert of(*[50_000] * int(6 / MEMORY), *[100] * int(6 / MEMORY)).long_tokens(0) < TIMES * 110


def test_what_one_step_computes_is_never_long() -> None:
    """Short prompts all around do not make a middling one long."""
    assert of(*[10] * 50).long_tokens(8192) == 8192
    assert Lengths().long_tokens(8192) == 8192


def test_a_few_giants_do_not_move_it() -> None:
    """One prompt in twenty of 100,000 tokens among those of 500 stays a long one."""
    assert of(*([500] * 19 + [100_000]) * 10).long_tokens(0) < TIMES * 1000


@given(st.lists(st.integers(0, 10**6), max_size=50), st.integers(0, 10**5))
def test_it_lies_among_what_came(lengths: list[int], step_tokens: int) -> None:
    """Whatever comes: never below a step, never beyond so many times the longest."""
    found = of(*lengths).long_tokens(step_tokens)

    assert found >= step_tokens
    assert found <= max(TIMES * max([1, *lengths]) * 1.001, step_tokens)
