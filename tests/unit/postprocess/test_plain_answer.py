"""An answer that is text alone says exactly what any other says without stop strings, thoughts, calls and logprobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ticket import AnswerSpec
from stages.postprocess.answer import Answer
from stages.postprocess.detokenizer import UnknownTokenError
from stages.postprocess.plain_answer import AnyAnswer, PlainAnswer
from tests.t256 import IM_END
from tests.unit.postprocess.answers import T256

CHUNKS = st.lists(st.lists(st.integers(0, 257), min_size=1, max_size=5), max_size=8)
SPECS = st.builds(AnswerSpec, skip_special_tokens=st.booleans(), include_stop=st.booleans())


def both(spec: AnswerSpec) -> tuple[AnyAnswer, AnyAnswer]:
    return PlainAnswer(T256, spec), Answer(T256, spec)


@given(chunks=CHUNKS, spec=SPECS, stops=st.booleans(), taken=st.lists(st.booleans(), min_size=8, max_size=8))
def test_it_is_the_same_answer(chunks: list[list[int]], spec: AnswerSpec, stops: bool, taken: list[bool]) -> None:
    """Every piece, the usage, and what waits in between, wherever pieces are taken and however it ends."""
    answers = both(spec)
    for index, chunk in enumerate(chunks):
        for each in answers:
            each.push(list(chunk), ends_with_stop_id=stops and index == len(chunks) - 1)
        plain, other = answers
        assert (plain.waiting, plain.has_news, plain.ids) == (other.waiting, other.has_news, other.ids)
        if taken[index]:
            assert plain.take() == other.take()
    for each in answers:
        each.finish()
    plain, other = answers
    assert plain.take() == other.take()
    assert not plain.has_news
    assert (plain.completion_tokens, plain.match, plain.calls_tools) == (other.completion_tokens, None, False)
    assert plain.reasoning_tokens() == other.reasoning_tokens() == 0


@given(ids=st.lists(st.integers(0, 257), max_size=12), more=st.lists(st.integers(0, 255), min_size=1, max_size=6))
def test_it_goes_on_where_stored_pieces_end(ids: list[int], more: list[int]) -> None:
    """A new owner brings it to where the old one left it, within a character too."""
    answers = both(AnswerSpec())
    for each in answers:
        each.restore(ids, (), 0)
        each.push(list(more))
    assert answers[0].take() == answers[1].take()


def test_an_unknown_token_adds_nothing() -> None:
    """The answer ends there, with what was certain before."""
    for each in both(AnswerSpec()):
        each.push([104, 105, IM_END])
        with pytest.raises(UnknownTokenError):
            each.push([258])
        assert each.take().ids == [104, 105, IM_END]


def test_pieces_keep_their_ids() -> None:
    """A piece that was taken does not change with what comes later, nor do the ids that came in."""
    answer = PlainAnswer(T256, AnswerSpec())
    first = [104]
    answer.push(first)
    answer.push([105])
    piece = answer.take()
    answer.push([33])
    assert (first, piece.ids, piece.text) == ([104], [104, 105], "hi")
