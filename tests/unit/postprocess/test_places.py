"""Positions in the content and in the raw text around it."""

from hypothesis import given
from hypothesis import strategies as st

from stages.postprocess.places import Places

STRETCHES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=8)


@given(STRETCHES, st.data())
def test_every_code_point_is_found_again(stretches: list[tuple[int, int]], data: st.DataObject) -> None:
    """Against a list of all of them; what is not needed any more may be forgotten meanwhile, and nothing else."""
    places, raw_of, raw, needed = Places(), list[int](), 0, 0
    for gap, length in stretches:
        raw += gap
        places.note(len(raw_of), raw, needed)
        raw_of += range(raw, raw + length)
        raw += length
        needed = data.draw(st.integers(needed, len(raw_of) - 1))
    for content in range(needed, len(raw_of)):
        assert places.start(content) == raw_of[content]
        assert places.end(content + 1) == raw_of[content] + 1


def test_without_a_break_positions_are_the_same() -> None:
    """Where nobody notes anything the content is the raw text."""
    assert (Places().start(7), Places().end(7)) == (7, 7)
