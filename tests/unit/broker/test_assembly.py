"""A client's view of an answer: no character missing, none twice, whatever arrives again or in other pieces."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.assembly import AnswerAssembly, ChoiceAssembly, Gap, Start
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
    """A fault is raised with its code, message, field and when to come again, once."""
    assembly = AnswerAssembly()
    with pytest.raises(RequestFault) as raised:
        assembly.push(Result(choice=0, attempt=0, at=1, fault=Fault("busy", "much waits", "deadline_s", 12.5)))
    assert raised.value.fault == Fault("busy", "much waits", "deadline_s", 12.5)
    assert assembly.complete


def test_what_came_before_a_fault_comes_first() -> None:
    """A live fault behind results that were not read yet is a gap; whoever has them gets the fault."""
    late = Result(
        choice=0,
        attempt=1,
        at=9,
        token_from=4,
        token_to=4,
        text_from=len("".join(WORDS[:4])),
        fault=Fault("deadline", ""),
    )
    assembly = ChoiceAssembly(0)
    with pytest.raises(Gap):
        assembly.push(late)
    assert assembly.push(piece(0, 4)) is not None
    for start in (assembly, ChoiceAssembly(0, Start(4)), ChoiceAssembly(0, Start(4, late.text_from))):
        with pytest.raises(RequestFault, match="deadline"):
            start.push(late)


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


@given(st.lists(st.integers(0, 10), max_size=8), st.integers(0, 10), st.booleans())
def test_going_on_at_any_token(cuts: list[int], start: int, exact: bool) -> None:
    """From any token on, however the answer is cut: the ids are exactly the rest.

    The text is too where its length is told; else it begins with a result, and `text_from` says where.
    """
    bounds = sorted({0, *cuts, len(WORDS)})
    shown = "".join(WORDS[:start])
    assembly = ChoiceAssembly(0, Start(start, len(shown) if exact else None))
    text, ids = shown, list[int]()
    results = [piece(first, last) for first, last in pairwise(bounds)]
    for result in [*results, *results]:
        chunk = assembly.push(result)
        if chunk is not None:
            assert chunk.token_from == start + len(ids)
            assert chunk.text_from <= len(text)
            assert not exact or chunk.text_from == len(text)
            text = text[: chunk.text_from] + chunk.text
            ids += chunk.ids
    assert ids == list(range(start, len(WORDS)))
    assert text == "".join(WORDS)
    assert assembly.ended


def test_logprobs_go_on_where_the_result_begins() -> None:
    """Their entries cannot be cut by token: `logprobs_from` says how many came before."""
    assembly = ChoiceAssembly(0, Start(5))
    assert assembly.push(piece(0, 4)) is None
    chunk = assembly.push(piece(4, 8))
    assert chunk is not None
    assert (chunk.logprobs_from, [entry.token for entry in chunk.logprobs or ()]) == (3, [" wör", "ld", "\U0001f600"])


def test_a_start_that_is_not_stored_any_more_is_a_gap() -> None:
    """What is stored begins behind it: the answer cannot be completed."""
    with pytest.raises(Gap):
        ChoiceAssembly(0, Start(3)).push(piece(4, 8))
    with pytest.raises(Gap):
        ChoiceAssembly(0, Start(5, 2)).push(piece(4, 8))


@pytest.mark.parametrize(
    ("start", "param"), [(Start(11), "from_token"), (Start(11, 3), "from_token"), (Start(4, 99), "from_text")]
)
def test_a_start_beyond_the_end(start: Start, param: str) -> None:
    """Who claims more than there is is told so; silence would look like an end."""
    assembly = ChoiceAssembly(0, start)
    with pytest.raises(RequestFault) as raised:
        assembly.push(piece(0, len(WORDS)))
    assert (raised.value.code, raised.value.param) == ("invalid_request", param)


def test_who_has_everything_gets_the_end() -> None:
    """All tokens and all text are there already: what is left is how it ended."""
    assembly = ChoiceAssembly(0, Start(10, len("".join(WORDS))))
    chunk = assembly.push(piece(0, len(WORDS)))
    assert chunk is not None
    assert (chunk.ids, chunk.text, chunk.finish) == ([], "", "stop")


def test_the_last_result_says_how_many_choices_there_are() -> None:
    """A client that did not send the request learns it from whichever choice ends first."""
    assembly = AnswerAssembly()
    first = Result(choice=1, attempt=1, at=2, token_to=1, text="x", ids=[7], finish="length", choices=3)
    assembly.push(first)
    assert not assembly.complete
    assembly.push(msgspec.structs.replace(first, choice=0))
    assert not assembly.complete
    assembly.push(msgspec.structs.replace(first, choice=2))
    assert assembly.complete


def test_one_choice_alone() -> None:
    """The others change nothing, their faults neither; a choice that there is not is said at once."""
    one = AnswerAssembly(only=1)
    end = Result(choice=0, attempt=1, at=2, token_to=1, text="x", ids=[7], finish="length", choices=2)
    assert one.push(end) is None
    assert one.push(Result(choice=2, attempt=1, at=2, fault=Fault("internal", "late"))) is None
    assert not one.complete
    assert one.push(msgspec.structs.replace(end, choice=1)) is not None
    assert one.complete
    with pytest.raises(RequestFault, match="choice: the answer has 2 choices"):
        AnswerAssembly(only=2).push(end)
