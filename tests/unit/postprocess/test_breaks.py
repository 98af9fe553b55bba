"""Where an answer's parts do not come in their usual order, its pieces say so: readers can tell it as it was."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.result import Break
from schemas.ticket import AnswerSpec
from stages.postprocess.answer import Answer, Piece
from stages.postprocess.families import splitter_for
from stages.postprocess.vocabulary import load_vocabulary
from tests.t256 import t256

T256 = load_vocabulary(t256().to_str().encode())
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
SPEC = AnswerSpec(reasoning="qwen3", tools="hermes", stop=["STOP"])
USUAL = f"<think>why</think>text{CALL}{CALL}"
UNUSUAL = f"<think>why</think>one{CALL}two{CALL}{CALL}three STOP"


def pieces_of(text: str, cuts: list[int]) -> list[Piece]:
    """One piece behind each cut, and one at the end."""
    answer, data = Answer(T256, SPEC, splitter_for(SPEC)), text.encode()
    pieces: list[Piece] = []
    for first, last in pairwise(sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})):
        if answer.match is None:
            answer.push(list(data[first:last]))
            pieces.append(answer.take())
    answer.finish()
    return [*pieces, answer.take()]


def breaks_in(pieces: list[Piece]) -> list[Break]:
    return [each for piece in pieces for each in piece.breaks or ()]


@pytest.mark.parametrize("text", ["text", "<think>why", USUAL])
def test_the_usual_order_has_none(text: str) -> None:
    """Thoughts, text, calls: nothing needs to be said."""
    assert breaks_in(pieces_of(text, [])) == breaks_in(pieces_of(text, list(range(99)))) == []


@given(st.lists(st.integers(0, 260)))
def test_however_it_is_cut(cuts: list[int]) -> None:
    """Each break is there once, where it is, and not later than what follows it."""
    pieces = pieces_of(UNUSUAL, cuts)
    assert breaks_in(pieces) == [Break(3, 3, 1), Break(6, 3, 3)]
    text, known = 0, 0
    for piece in pieces:
        text, known = text + len(piece.text), known + len(piece.breaks or ())
        assert known >= (text > 3) + (text > 6)
