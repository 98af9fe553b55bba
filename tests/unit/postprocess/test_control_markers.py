"""Markers that are control tokens: a splitter sees them, nobody else; and where things stand in the raw text."""

import pytest

from schemas.ticket import AnswerSpec
from stages.postprocess.answer import Answer
from stages.postprocess.calls import Calls
from stages.postprocess.parts import Parts
from stages.postprocess.splitter import Content, Event, Markup, Reasoning
from stages.postprocess.stops import StopMatcher
from tests.t256 import IM_END, sentencepiece
from tests.unit.postprocess.answers import ID, MISTRAL, Told, answer, entries_for, id_of, pieces_of, spec, with_controls

MISTRAL_SPEC = spec(reasoning="mistral", tools="mistral")


def test_markers_that_are_control_tokens_reach_the_splitter() -> None:
    """And nobody else: where one stands in the content, or in the thoughts, it is not shown."""
    ids = [
        *[ID["[THINK]"], *b"w", ID["[THINK]"], *b"hy", ID["[/THINK]"]],
        *[*b"ok", ID["[THINK]"], *b"a", ID["[/THINK]"], *b"y"],
        *[ID["[TOOL_CALLS]"], *b'[{"name": "f", "arguments": {"id": 42}}]'],
    ]
    for chunks in ([ids], [[token_id] for token_id in ids]):
        for logprobs in (False, True):
            grown = answer(MISTRAL_SPEC, vocabulary=MISTRAL, logprobs=logprobs)
            found = Told(pieces_of(grown, chunks, logprobs=logprobs))
            assert (found.reasoning, found.text) == ("why", "okay")
            assert found.called == [("f", '{"id": 42}')]
            assert (found.ids, grown.completion_tokens) == (ids, len(ids))


def test_control_tokens_stand_in_the_text_on_demand() -> None:
    """With `skip_special_tokens` off those that are no marker's do, as without a splitter."""
    ids = [ID["[THINK]"], *b"why", ID["[/THINK]"], *b"ok", ID["[THINK]"], IM_END, *b"!"]
    shown = spec(reasoning="mistral", tools="", skip_special_tokens=False)
    found = Told(pieces_of(answer(shown, vocabulary=MISTRAL), [ids]))
    assert (found.reasoning, found.text) == ("why", "ok[THINK]<|im_end|>!")


def test_stop_strings_over_a_hidden_control_token() -> None:
    """The content is what a client gets: `EN`, a token that is not shown, `D`; the tokens are counted all the same."""
    ids = [*b"xEN", ID["[THINK]"], *b"Dy"]
    for chunks in ([ids], [[token_id] for token_id in ids]):
        grown = answer(spec(["END"], reasoning="mistral"), vocabulary=MISTRAL, logprobs=True)
        found = Told(pieces_of(grown, chunks, logprobs=True))
        assert (found.text, grown.completion_tokens) == ("x", 5)
        assert [entry.token for entry in found.logprobs] == ["x"]


def test_the_id_that_ends_an_answer_may_be_a_marker() -> None:
    """A18: it is no text, but ends the thoughts; with include_stop an id that is no control token is text."""
    grown = answer(spec(reasoning="mistral", reasoning_open=True), vocabulary=MISTRAL)
    grown.push([*b"why", ID["[/THINK]"]], ends_with_stop_id=True)
    grown.finish()
    found = Told([grown.take()])
    assert (found.reasoning, found.text, len(found.ids)) == ("why", "", 4)
    for include_stop, text in ((False, "ab"), (True, "ab!")):
        grown = answer(AnswerSpec(include_stop=include_stop), logprobs=True)
        grown.push(b"ab!", entries_for(b"ab!"), ends_with_stop_id=True)
        grown.finish()
        piece = grown.take()
        assert (piece.text, len(piece.logprobs or ()), grown.completion_tokens) == (text, len(text), 3)


def test_markers_reach_the_splitter_from_pieces_too() -> None:
    """The same for a vocabulary that goes by the tokenizers library."""
    tokenizer = sentencepiece()
    vocabulary, _ = with_controls(tokenizer)
    said = [id_of(tokenizer, token) for token in ("[THINK]", "▁hi", "x", "[/THINK]", "a", "[THINK]", "▁x")]
    for chunks in ([said], [[token_id] for token_id in said]):
        found = Told(pieces_of(answer(MISTRAL_SPEC, vocabulary=vocabulary), chunks))
        assert (found.reasoning.strip(), found.text) == ("hix", "a x")


class Scripted:
    """A splitter that gives the events it was told to, all at the end, and notes what it is given."""

    markers = frozenset({"[THINK]"})

    def __init__(self, *events: Event) -> None:
        self.seen = ""
        self._events = [*events]

    def push(self, text: str) -> list[Event]:
        self.seen += text
        return []

    def flush(self) -> list[Event]:
        return self._events


def test_a_marker_that_ends_the_answer_reaches_the_splitter() -> None:
    """A18: the id that ended it is no text, but some calls end with it; an id that is no marker stays out."""
    for stop_id, seen in ((ID["[THINK]"], "a[THINK]"), (IM_END, "a"), (0x62, "a")):
        splitter = Scripted()
        grown = Answer(MISTRAL, AnswerSpec(skip_special_tokens=False), splitter)
        grown.push([0x61, stop_id], ends_with_stop_id=True)
        assert (splitter.seen, [*grown.ids]) == (seen, [0x61, stop_id])


@pytest.mark.parametrize(("include", "text", "certain"), [(True, "aEND", 9), (False, "a", 4)])
def test_what_is_certain_in_the_raw_text(include: bool, text: str, certain: int) -> None:
    """Markup within the content moves a stop string in the raw text: its entries and tokens are found behind it."""
    events = [Markup(3), Content("aEN"), Markup(2), Content("D"), Markup(4), Content("b")]
    parts = Parts(Scripted(*events), StopMatcher(["ENDb!", "END"], include), Calls(str))
    parts.push("...aEN..D....b")
    assert parts.certain == 0
    parts.flush()
    assert (parts.match_end, parts.certain, parts.text) == (9, certain, text)


def test_a_control_token_that_events_cut() -> None:
    """It is not shown, whichever piece of it stands in an event; what stands beside it is."""
    parts = Parts(Scripted(Content("ab[TH"), Markup(2), Content("K]c"), Reasoning("d[X]e")), None, Calls(str))
    parts.push("ab")
    parts.push_control("[THINK]")
    parts.push("cd")
    parts.push_control("[X]")
    parts.push("e")
    parts.flush()
    assert (parts.text, parts.reasoning) == ("abc", "de")
