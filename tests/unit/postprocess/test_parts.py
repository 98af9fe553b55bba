"""Answers with thoughts and tool calls: stop strings, usage and logprobs where text is taken apart."""

import string
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from schemas.ticket import AnswerSpec
from stages.postprocess.answer import Piece
from stages.postprocess.calls import call_id, call_ids, short_call_id
from tests.unit.postprocess.answers import KEY, MISTRAL, Told, answer, entries_for, pieces_of, spec, told

CALL = '<tool_call>\n{"name": "f", "arguments": {"id": 42}}\n</tool_call>'


def test_stop_strings_are_looked_for_in_the_content_alone() -> None:
    """A14: `Question:` in the thoughts stops nothing, and the answer is not null."""
    found = told(spec(["Question:"]), "<think>Question: x</think>42")
    assert (found.reasoning, found.text) == ("Question: x", "42")
    found = told(spec(["Question:"], reasoning_open=True), "Question: x</think>42 Question: y")
    assert (found.reasoning, found.text) == ("Question: x", "42 ")


def test_a_stop_string_in_a_call_stops_nothing() -> None:
    """A14: a call's arguments are none of the content either."""
    found = told(spec(["id", "}"]), f"so: {CALL}")
    assert found.called == [("f", '{"id": 42}')]
    assert "so:" in found.text


def test_usage_behind_thoughts_counts_up_to_the_stop_string() -> None:
    """A13, A14: the tokens of thoughts and tags too; what follows the match is cut, however the ids came."""
    text = "<think>why</think>a END b"
    for chunks in ([text.encode()], [[byte] for byte in text.encode()], [text[:20].encode(), text[20:].encode()]):
        grown = answer(spec(["END"], tools=""))
        found = Told(pieces_of(grown, chunks))
        assert (found.reasoning, found.text) == ("why", "a ")
        assert grown.completion_tokens == text.index("END") + 3
        assert bytes([*grown.ids]) == text[: grown.completion_tokens].encode()


def test_a_stop_string_does_not_reach_over_a_call() -> None:
    """What stands before a call is settled when the call begins, since the call is told by then."""
    found = told(spec(["EN END"]), f"EN{CALL} END")
    assert "EN" in found.text
    assert found.called == [("f", '{"id": 42}')]
    grown = answer(spec(["he there", "he"]))
    found = Told(pieces_of(grown, [f"the{CALL}".encode()]))
    assert (found.text, found.called, grown.completion_tokens) == ("t", [], 3)


def test_min_tokens_count_the_thoughts() -> None:
    """A18: tokens are tokens. A stop string that ends with one of the first min_tokens is content."""
    text = "<think>y</think>END END"
    first, second = text.index("END") + 3, len(text)
    for chunks in ([text.encode()], [[byte] for byte in text.encode()]):
        for minimum, end in ((first - 1, first), (first, second), (second - 1, second)):
            grown = answer(spec(["END"]), min_tokens=minimum)
            found = Told(pieces_of(grown, chunks))
            assert (found.text, grown.completion_tokens) == (text[16 : end - 3], end)


def test_the_flush_goes_through_splitter_and_stop_strings() -> None:
    """A15: what the splitter held back as half a tag is content like any other, and may complete a stop string."""
    found = told(spec(["b<"]), "<think>a</think>b<")
    assert (found.reasoning, found.text) == ("a", "")
    assert told(spec(["<|im_end|>"]), "<think>a</think>b<").text == "b<"


def test_thoughts_are_dropped_on_demand() -> None:
    """`include_reasoning` off: they cost tokens, and nobody gets them."""
    grown = answer(spec(include_reasoning=False))
    text = "<think>why</think>42"
    found = Told(pieces_of(grown, [[byte] for byte in text.encode()]))
    assert (found.reasoning, found.text, grown.completion_tokens) == ("", "42", len(text))


def test_entries_come_with_the_text_that_they_belong_to() -> None:
    """C14: those of thoughts with the thoughts, of tags and calls as they are read, of a stop string never."""
    text = "<think>y</think>a END"
    pieces = pieces_of(answer(spec(["END"]), logprobs=True), [[byte] for byte in text.encode()], logprobs=True)
    shown = "".join(entry.token for entry in Told(pieces).logprobs)
    assert shown == "<think>y</think>a "
    so_far = ""
    for piece in pieces:
        so_far += "".join(entry.token for entry in piece.logprobs or ())
        assert text.startswith(so_far)
        assert not piece.text or so_far.endswith(piece.text)
        assert not piece.reasoning or so_far.endswith(piece.reasoning)


def test_entries_of_a_shown_stop_string_stay() -> None:
    """C14: with include_stop its text is shown, and so are its entries, but none of what follows."""
    grown = answer(spec(["END"], include_stop=True), logprobs=True)
    found = Told(pieces_of(grown, [b"<think>y</think>aEND<tool_call>"], logprobs=True))
    assert found.text == "aEND"
    assert "".join(entry.token for entry in found.logprobs) == "<think>y</think>aEND"


def test_only_one_call_where_no_parallel_calls_are_wanted() -> None:
    """The others are dropped; what is left is numbered as ever."""
    found = told(spec(parallel_tool_calls=False), f"{CALL}\n{CALL.replace('42', '43')}")
    assert found.called == [("f", '{"id": 42}')]
    found = told(spec(), f"{CALL}\n{CALL.replace('42', '43')}")
    assert found.called == [("f", '{"id": 42}'), ("f", '{"id": 43}')]


def test_a_call_that_is_cut_off_is_not_complete() -> None:
    """F3: its arguments end where the tokens did."""
    grown = answer(spec())
    found = Told(pieces_of(grown, [CALL[:45].encode()]))
    assert found.called == [("f", CALL[CALL.index('{"id') : 45])]
    assert not grown.calls_tools


def test_ids_of_calls_are_a_function_of_the_choice() -> None:
    """Whoever tells the answer again tells the same ids; Mistral's are nine letters and digits."""
    first = told(spec(), f"{CALL}\n{CALL}").calls
    assert [call.id for call in first.values()] == [call_id(KEY, 0), call_id(KEY, 1)]
    assert len({call_id(KEY, 0), call_id(KEY, 1), call_id(("acme.r1", 1), 0), call_id(("acme.r2", 0), 0)}) == 4
    assert call_id(KEY, 0).startswith("call_")
    assert len(call_id(KEY, 0)) == 29
    assert call_ids(KEY, MISTRAL)(1) == short_call_id(KEY, 1)
    short = [short_call_id(KEY, index) for index in range(200)]
    assert len(set(short)) == 200
    assert {len(each) for each in short} == {9}
    assert {char for each in short for char in each} <= set(string.ascii_letters + string.digits)


PARTS = st.sampled_from(
    ["<think>", "</think>", CALL, CALL[:30], "a", "b", "ab", "é", "\n", "<", "\U0001f600", "<tool_call>", "ba"]
)
TEXTS = st.lists(PARTS, max_size=8).map("".join)
PLACES = st.sets(st.integers(1, 90), max_size=12)
SETTINGS = st.builds(
    spec,
    st.lists(st.text("ab<é", min_size=1, max_size=3), max_size=2),
    include_stop=st.booleans(),
    reasoning_open=st.booleans(),
    include_reasoning=st.booleans(),
    tools=st.sampled_from(["", "hermes"]),
    parallel_tool_calls=st.booleans(),
)


def chunked(ids: bytes, places: set[int]) -> list[bytes]:
    edges = [0, *sorted(place for place in places if place < len(ids)), len(ids)]
    return [ids[start:end] for start, end in pairwise(edges)]


@given(TEXTS, PLACES, SETTINGS, st.integers(0, 12), st.booleans())
def test_nothing_depends_on_chunks(text: str, places: set[int], spec: AnswerSpec, minimum: int, logprobs: bool) -> None:
    """The universal property: text, thoughts, calls, usage, logprobs and stop are those of the whole."""
    outcomes: list[object] = []
    for chunks in ([text.encode()], chunked(text.encode(), places), [[byte] for byte in text.encode()]):
        grown = answer(spec, min_tokens=minimum, logprobs=logprobs)
        found = Told(pieces_of(grown, chunks, logprobs=logprobs))
        outcomes.append((vars(found) | {"ids": None}, grown.completion_tokens, bytes([*grown.ids]), grown.match))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@given(TEXTS, PLACES, st.integers(0, 90), SETTINGS, st.booleans())
def test_an_answer_is_rebuilt_from_its_pieces(
    text: str, places: set[int], died_after: int, spec: AnswerSpec, logprobs: bool
) -> None:
    """A takeover within thoughts, tags or calls: the rebuilt answer goes on exactly there, with the same calls."""
    before, after = text.encode()[:died_after], text.encode()[died_after:]
    whole = answer(spec, logprobs=logprobs)
    undisturbed = Told(pieces_of(whole, [text.encode()], logprobs=logprobs))
    first = answer(spec, logprobs=logprobs)
    pieces: list[Piece] = []
    for chunk in chunked(before, places):
        position = len(first.ids)
        first.push(list(chunk), entries_for(chunk, position) if logprobs else None)
        pieces.append(first.take())
        if first.match is not None:
            return
    second = answer(spec, logprobs=logprobs)
    last = pieces[-1]
    second.restore([*before], last.held or (), last.logprobs_from + len(last.logprobs or ()))
    second.push(list(after), entries_for(after, len(before)) if logprobs else None)
    second.finish()
    found = Told([*pieces, second.take()])
    assert vars(found) | {"ids": None} == vars(undisturbed) | {"ids": None}
    assert (second.completion_tokens, second.match) == (whole.completion_tokens, whole.match)
