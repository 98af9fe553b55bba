"""A client's view of an answer: no character missing, none twice, whatever arrives again or in other pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.assembly import AnswerAssembly, ChoiceAssembly, Gap
from schemas.faults import Fault, RequestFault
from schemas.result import Result, ResultLogprob

WORDS = ["He", "l", "lo", "", " wör", "ld", "", "\U0001f600", "!", " end"]


def piece(start: int, end: int) -> Result:
    """The result that covers tokens [start, end) of an answer whose token i has the text WORDS[i]."""
    shown = [word for word in WORDS[start:end] if word]
    return Result(
        choice=0,
        attempt=1,
        at=start + 1,
        token_from=start,
        token_to=end,
        text_from=len("".join(WORDS[:start])),
        text="".join(WORDS[start:end]),
        ids=list(range(start, end)),
        logprobs=[ResultLogprob(word, [], 0.0) for word in shown],
        logprobs_from=sum(1 for word in WORDS[:start] if word),
        finish="stop" if end == len(WORDS) else "",
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10)), max_size=30))
def test_any_overlap(ranges: list[tuple[int, int]]) -> None:
    """Pieces in any order and overlap give the text, the ids and the logprobs once; a piece too far ahead is a gap."""
    assembly = ChoiceAssembly(0)
    text, ids, logprobs = "", list[int](), list[str]()
    for start, end in [*ranges, (0, len(WORDS))]:
        if start > end:
            continue
        tokens = assembly.tokens
        try:
            chunk = assembly.push(piece(start, end))
        except Gap:
            assert start > tokens
            continue
        if chunk is not None:
            assert (chunk.token_from, chunk.text_from) == (len(ids), len(text))
            text += chunk.text
            ids += chunk.ids
            logprobs += [entry.token for entry in chunk.logprobs or ()]
    assert text == "".join(WORDS)
    assert ids == list(range(len(WORDS)))
    assert logprobs == [word for word in WORDS if word]


def test_nothing_after_the_end() -> None:
    """What follows a terminal result is ignored, a second terminal too."""
    assembly = AnswerAssembly(n=1)
    last = assembly.push(piece(0, len(WORDS)))
    assert last is not None
    assert last.finish == "stop"
    assert assembly.complete
    assert assembly.push(piece(0, len(WORDS))) is None
    assert assembly.push(Result(choice=0, attempt=2, at=99, fault=Fault("internal", "late"))) is None


def test_a_fault_names_its_field() -> None:
    """A fault is raised with its code, message and field, once."""
    assembly = AnswerAssembly()
    with pytest.raises(RequestFault) as raised:
        assembly.push(Result(choice=0, attempt=0, at=1, fault=Fault("invalid_request", "must be >= 0", "temperature")))
    assert raised.value.fault == Fault("invalid_request", "must be >= 0", "temperature")
    assert assembly.complete


def test_every_choice_has_to_end() -> None:
    """An answer of two choices is complete when both have ended, each with its own offsets."""
    assembly = AnswerAssembly(n=2)
    assembly.push(piece(0, 10))
    assert not assembly.complete
    other = assembly.push(Result(choice=1, attempt=1, at=2, token_to=1, text="x", ids=[7], finish="length"))
    assert other is not None
    assert (other.choice, other.text) == (1, "x")
    assert assembly.complete


def test_markers_are_silent() -> None:
    """A result without ids, text or end gives no chunk: empty deltas are not sent."""
    assembly = ChoiceAssembly(0)
    assert assembly.push(Result(choice=0, attempt=5, at=3)) is None
    assert assembly.push(piece(0, 4)) is not None
    assert assembly.push(Result(choice=0, attempt=6, at=9, token_from=4, token_to=4, text_from=5)) is None
