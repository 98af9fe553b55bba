"""One choice's answer: text, stops, usage and logprobs together, the same however the ids come."""

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.journal import Alternative, TokenLogprob
from schemas.result import ResultLogprob
from schemas.ticket import AnswerSpec
from stages.postprocess.answer import Answer, Piece
from stages.postprocess.detokenizer import UnknownTokenError
from stages.postprocess.logprobs import FLOOR, finite
from stages.postprocess.vocabulary import load_vocabulary
from tests.t256 import IM_END, IM_START, t256

T256 = load_vocabulary(t256().to_str().encode())


def answer(
    stop: Sequence[str] = (),
    *,
    include_stop: bool = False,
    min_tokens: int = 0,
    logprobs: bool = False,
    skip_special_tokens: bool = True,
) -> Answer:
    spec = AnswerSpec(stop=list(stop), include_stop=include_stop, skip_special_tokens=skip_special_tokens)
    return Answer(T256, spec, min_tokens=min_tokens, logprobs=logprobs)


def entry(position: int) -> TokenLogprob:
    """A logprob that tells which token it belongs to."""
    return TokenLogprob(-float(position + 1))


def pieces_of(
    grown: Answer, chunks: Sequence[Sequence[int]], *, with_logprobs: bool = False, finish: bool = True
) -> list[Piece]:
    """A piece after every chunk, then one after the end; no chunk is pushed after a match."""
    pieces: list[Piece] = []
    position = 0
    for chunk in chunks:
        entries = [entry(position + index) for index in range(len(chunk))] if with_logprobs else None
        grown.push(list(chunk), entries)
        position += len(chunk)
        pieces.append(grown.take())
        if grown.match is not None:
            return pieces
    if finish:
        grown.finish()
        pieces.append(grown.take())
    return pieces


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def ids_of(pieces: Sequence[Piece]) -> list[int]:
    return [token_id for piece in pieces for token_id in piece.ids]


def logprobs_of(pieces: Sequence[Piece]) -> list[ResultLogprob]:
    return [each for piece in pieces for each in piece.logprobs or ()]


def test_a_stop_string_ends_text_and_usage_where_it_is_complete() -> None:
    """A13: one chunk holds much more; usage counts up to the token that completed the match, the rest is cut."""
    grown = answer(["\n\n"])
    pieces = pieces_of(grown, [b"a\n\nb" + b"b" * 1000])
    assert (text_of(pieces), grown.completion_tokens, ids_of(pieces)) == ("a", 3, list(b"a\n\n"))
    assert grown.match is not None
    assert grown.match.stop == "\n\n"


def test_the_stop_string_is_shown_on_demand() -> None:
    """A13: with include_stop the text is `a\\n\\n`."""
    assert text_of(pieces_of(answer(["\n\n"], include_stop=True), [b"a", b"\n", b"\n", b"b"])) == "a\n\n"


def test_usage_does_not_count_what_only_decided_for_a_match() -> None:
    """A11, A13: `he` is complete before `her` is out of the question: the tokens behind it are not counted."""
    for chunks in ([b"thex"], [b"t", b"h", b"e", b"x"]):
        grown = answer(["her", "he"])
        assert text_of(pieces_of(grown, chunks)) == "t"
        assert grown.completion_tokens == 3


def test_the_id_that_ends_an_answer_is_counted_and_not_shown() -> None:
    """A4, A18: EOS, or one of stop_token_ids, last of its chunk; even where control tokens are shown."""
    grown = answer(skip_special_tokens=False)
    grown.push([*b"a\xef\xbf\xbd", IM_END], ends_with_stop_id=True)
    grown.finish()
    piece = grown.take()
    assert (piece.text, grown.completion_tokens, len(piece.ids)) == ("a\ufffd", 5, 5)


def test_a_stop_id_is_one_only_where_the_engine_says_so() -> None:
    """A18: below min_tokens it is not; in the middle of a chunk it is text, at the end of the last one it is not."""
    grown = answer(min_tokens=2)
    grown.push(b"aXb")
    grown.push(b"cX", ends_with_stop_id=True)
    grown.finish()
    piece = grown.take()
    assert (piece.text, grown.completion_tokens, bytes(piece.ids)) == ("aXbc", 5, b"aXbcX")


def test_every_step_s_text_and_logprobs_come() -> None:
    """A21: seven tokens in steps of three, all of their texts and entries, in order."""
    pieces = pieces_of(answer(logprobs=True), [b"abc", b"def", b"g"], with_logprobs=True)
    assert [piece.text for piece in pieces] == ["abc", "def", "g", ""]
    assert [(each.token, each.logprob) for each in logprobs_of(pieces)] == [
        (token, entry(position).logprob) for position, token in enumerate("abcdefg")
    ]


@pytest.mark.parametrize("wrong", [-1, 2**40, 300])
@pytest.mark.parametrize("settings", [{}, {"stop": ["x"]}, {"logprobs": True}])
def test_an_id_outside_the_vocabulary_ends_the_answer(wrong: int, settings: dict[str, object]) -> None:
    """A8: it is named, whichever way the ids take."""
    entries = [entry(index) for index in range(3)] if settings.get("logprobs") else None
    with pytest.raises(UnknownTokenError, match=f"token id {wrong} "):
        answer(**settings).push([61, wrong, 62], entries)  # type: ignore[arg-type]


def test_a_stop_string_wins_over_the_id_behind_it() -> None:
    """The answer had ended before: the stop id is not counted."""
    grown = answer(["b"])
    grown.push([*b"ab", IM_END], ends_with_stop_id=True)
    assert grown.completion_tokens == 2
    assert grown.take().text == "a"


def test_half_a_stop_string_at_the_end_is_text() -> None:
    """A15: the flush goes through the matcher, and what was held comes out; a match that waited is one."""
    assert text_of(pieces_of(answer(["<|im_end|>"]), [b"a</think>b<"])) == "a</think>b<"
    grown = answer(["her", "he"])
    assert text_of(pieces_of(grown, [b"the"])) == "t"
    assert grown.match is not None


def test_half_a_character_at_the_end_is_one_replacement_character() -> None:
    """A3: also where stop strings are looked for."""
    assert text_of(pieces_of(answer(), [b"\xf0\x9f\x91"])) == "\ufffd"
    assert text_of(pieces_of(answer(["x"]), [b"\xf0", b"\x9f", b"\x91"])) == "\ufffd"


@pytest.mark.parametrize("chunks", [[b"abab"], [b"a", b"b", b"a", b"b"], [b"aba", b"b"]])
def test_min_tokens_bars_stop_strings(chunks: list[bytes]) -> None:
    """A18: a stop string within the first min_tokens tokens ends nothing, whatever the chunks."""
    grown = answer(["ab"], min_tokens=2)
    assert text_of(pieces_of(grown, chunks)) == "ab"
    assert grown.completion_tokens == 4


def test_entries_travel_with_their_text() -> None:
    """C14: stop `END`, tokens `a`, `E`, `ND`, `b`: the entry of `a` alone, and none while text is held back."""
    grown = answer(["END"], logprobs=True)
    pieces = pieces_of(grown, [b"a", b"E", b"ND", b"b"], with_logprobs=True)
    assert [len(piece.logprobs or ()) for piece in pieces] == [1, 0, 0]
    assert [each.token for each in logprobs_of(pieces)] == ["a"]


def test_entries_of_held_text_come_when_it_comes() -> None:
    """C14: what only looked like a stop string keeps its entries."""
    pieces = pieces_of(answer(["END"], logprobs=True), [b"a", b"E", b"x"], with_logprobs=True)
    assert [[each.token for each in piece.logprobs or ()] for piece in pieces] == [["a"], [], ["E", "x"], []]
    assert [piece.logprobs_from for piece in pieces] == [0, 1, 1, 3]


def test_entries_of_a_character_s_bytes_come_with_the_character() -> None:
    """C14, C15: text and bytes are filled in for parts of characters too."""
    pieces = pieces_of(answer(logprobs=True), [bytes([byte]) for byte in "é".encode()], with_logprobs=True)
    assert [len(piece.logprobs or ()) for piece in pieces] == [0, 2, 0]
    assert [(each.token, each.bytes) for each in logprobs_of(pieces)] == [("\ufffd", [0xC3]), ("\ufffd", [0xA9])]


def test_alternatives_have_text_too() -> None:
    """C15: token and bytes for all; none asked for is an empty list; a padded row of the model is no error."""
    grown = answer(logprobs=True)
    top = [Alternative(0x61, -0.1), Alternative(IM_END, -2.0), Alternative(5000, -9.0)]
    grown.push([0x61, 0x62], [TokenLogprob(-0.1, top), TokenLogprob(-0.2)])
    first, second = grown.take().logprobs or []
    assert [(each.token, bytes(each.bytes)) for each in first.top] == [
        ("a", b"a"),
        ("<|im_end|>", b"<|im_end|>"),
        ("", b""),
    ]
    assert second.top == []


@pytest.mark.parametrize("wrong", [-math.inf, math.nan, math.inf])
def test_logprobs_are_finite(wrong: float) -> None:
    """C17: strict JSON always; minus infinity and NaN become one floor."""
    grown = answer(logprobs=True)
    grown.push([0x61], [TokenLogprob(wrong, [Alternative(0x62, wrong)])])
    (told,) = grown.take().logprobs or []
    expected = 0.0 if wrong == math.inf else FLOOR
    assert (told.logprob, told.top[0].logprob) == (expected, expected)
    assert msgspec.json.decode(msgspec.json.encode(told))["logprob"] == expected
    assert finite(-3.5) == -3.5


def test_as_many_entries_as_ids() -> None:
    """Anything else is a fault of the engine, which must not shift the others."""
    with pytest.raises(ValueError, match="2 tokens came with 1 logprobs"):
        answer(logprobs=True).push([1, 2], [entry(0)])


IDS = st.lists(st.sampled_from([*b"aab", *"é😀".encode(), 0xFF, IM_START]), max_size=24)
PLACES = st.sets(st.integers(1, 24))
SETTINGS = st.fixed_dictionaries(
    {
        "stop": st.lists(st.text("abé", min_size=1, max_size=3), max_size=3),
        "include_stop": st.booleans(),
        "min_tokens": st.integers(0, 4),
        "logprobs": st.booleans(),
        "skip_special_tokens": st.booleans(),
    }
)


def outcome(made: Answer, chunks: Sequence[Sequence[int]], with_logprobs: bool) -> tuple[object, ...]:
    pieces = pieces_of(made, chunks, with_logprobs=with_logprobs)
    text_from = token_from = entries_from = 0
    for piece in pieces:
        assert (piece.text_from, piece.token_from, piece.logprobs_from) == (text_from, token_from, entries_from)
        text_from += len(piece.text)
        token_from += len(piece.ids)
        entries_from += len(piece.logprobs or ())
    return text_of(pieces), made.completion_tokens, logprobs_of(pieces), made.match


def chunked(ids: list[int], places: set[int]) -> list[list[int]]:
    edges = [0, *sorted(place for place in places if place < len(ids)), len(ids)]
    return [ids[start:end] for start, end in pairwise(edges)]


@given(IDS, PLACES, SETTINGS)
def test_nothing_depends_on_chunks(ids: list[int], places: set[int], settings: dict[str, object]) -> None:
    """The universal property: every chunking has the text, usage, logprobs and stop of the whole; offsets add up."""
    with_logprobs = bool(settings["logprobs"])
    whole = outcome(answer(**settings), [ids], with_logprobs)  # type: ignore[arg-type]
    assert outcome(answer(**settings), chunked(ids, places), with_logprobs) == whole  # type: ignore[arg-type]


@given(IDS, PLACES, st.integers(0, 24), SETTINGS)
def test_an_answer_is_rebuilt_from_its_pieces(
    ids: list[int], places: set[int], died_after: int, settings: dict[str, object]
) -> None:
    """A takeover: ids, held logprobs and counts of the stored pieces give an answer that goes on exactly there."""
    with_logprobs = bool(settings["logprobs"])
    whole = outcome(answer(**settings), [ids], with_logprobs)  # type: ignore[arg-type]
    before, after = ids[:died_after], ids[died_after:]
    first = answer(**settings)  # type: ignore[arg-type]
    told = pieces_of(first, chunked(before, places), with_logprobs=with_logprobs, finish=False)
    if first.match is not None:
        return
    second = answer(**settings)  # type: ignore[arg-type]
    second.restore(ids_of(told), (told[-1].held if told else None) or (), len(logprobs_of(told)))
    entries = [entry(len(before) + index) for index in range(len(after))] if with_logprobs else None
    second.push(after, entries)
    if second.match is None:
        second.finish()
    told.append(second.take())
    assert (text_of(told), second.completion_tokens, logprobs_of(told), second.match) == whole
    assert told[-1].text_from == len(text_of(told[:-1]))
