"""Thoughts and what is said, the same however the text is cut: rows F5, F6, F8 and A15 of the known faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.thinking import THINK, THINK_TAGS
from stages.postprocess.reasoning import ReasoningSplitter
from stages.postprocess.splitter import CallArguments, CallStart, Content, Event, Markup, Reasoning, held_from
from tests.unit.postprocess.splitting import Split, split


def parted(text: str, *, opened: bool = False) -> tuple[str, str]:
    """Thoughts and content, checked to be the same in one piece and in single characters."""
    whole = split(ReasoningSplitter(THINK, opened=opened), [text])
    assert split(ReasoningSplitter(THINK, opened=opened), list(text)) == whole
    return whole.reasoning, whole.content


def test_a_closing_tag_in_pieces_is_found() -> None:
    """F5: `x</th` + `ink>y`, and byte by byte."""
    splitter = ReasoningSplitter(THINK, opened=True)
    assert splitter.push("x</th") == [Reasoning("x")]
    assert splitter.push("ink>y") == [Markup(8), Content("y")]
    assert parted("x</think>y", opened=True) == ("x", "y")


def test_the_opening_tag_is_in_the_prompt() -> None:
    """F6: only the closing tag is generated. An opening tag that is written once more is none of the thoughts."""
    assert parted("why</think>42", opened=True) == ("why", "42")
    assert parted("<think>why</think>42", opened=True) == ("why", "42")
    assert parted("</think>42", opened=True) == ("", "42")


def test_the_opening_tag_is_in_the_answer() -> None:
    """With white space before it, which goes with it; what stands behind a tag is kept to the last line break."""
    assert parted("<think>why</think>42") == ("why", "42")
    assert parted("\n\n<think>\nwhy\n</think>\n\n42") == ("\nwhy\n", "\n\n42")


@pytest.mark.parametrize("text", ["42", "", "\n 42", "<thin", "a <think>b</think> c", "why</think>42", "< think>x"])
def test_an_answer_without_thoughts_is_all_content(text: str) -> None:
    """Tags that stand elsewhere are text: people ask about them, and what is out as content is not taken back."""
    assert parted(text) == ("", text)


def test_white_space_is_not_held_for_ever() -> None:
    """A model that writes nothing else is heard; a tag behind so much of it is text."""
    assert ReasoningSplitter(THINK).push(" " * 65) == [Content(" " * 65)]
    assert parted(" " * 64 + "<think>a</think>b") == ("a", "b")
    assert parted(" " * 65 + "<think>a</think>b") == ("", " " * 65 + "<think>a</think>b")
    assert parted(" " * 65 + "a</think>b", opened=True) == (" " * 65 + "a", "b")


def test_the_first_closing_tag_ends_the_thoughts() -> None:
    """F8: also one that the thoughts only quote. The second one is content."""
    text = "the tag `</think>` closes</think>42"
    assert parted(text, opened=True) == ("the tag `", "` closes</think>42")
    assert parted("<think>" + text) == ("the tag `", "` closes</think>42")


def test_thoughts_that_nothing_closes_stay_thoughts() -> None:
    """The answer was cut off in the middle of them, or of the closing tag."""
    assert parted("<think>so") == ("so", "")
    assert parted("so</thin", opened=True) == ("so</thin", "")
    assert parted("<thin", opened=True) == ("<thin", "")


def test_only_what_may_become_a_tag_is_held_back() -> None:
    """A15: the shortest such suffix, no fixed number of characters."""
    splitter = ReasoningSplitter(THINK, opened=True)
    assert splitter.push("a long thought <") == [Reasoning("a long thought ")]
    assert splitter.push("b") == [Reasoning("<b")]
    assert splitter.push("</think>b<") == [Markup(8), Content("b<")]


@pytest.mark.parametrize("family", sorted(THINK_TAGS))
def test_every_family_has_its_tags(family: str) -> None:
    """Thoughts and content of each, in single characters too; control tokens among the tags are asked for."""
    tags = THINK_TAGS[family]
    text = f"{tags.opener}why{tags.closer}42"
    for chunks in ([text], list(text)):
        splitter = ReasoningSplitter(tags)
        assert {tags.opener, tags.closer} <= splitter.markers
        found = split(splitter, chunks)
        assert (found.reasoning, found.content) == ("why", "42")


class Shouted:
    """A splitter of calls for tests: `!name!` is a call without arguments, the rest content; `!` asks for a control."""

    markers = frozenset({"!"})

    def __init__(self) -> None:
        self._text = ""

    def push(self, text: str) -> list[Event]:
        self._text += text
        events: list[Event] = []
        while self._text.count("!") >= 2 and self._text.startswith("!"):
            name, _, self._text = self._text[1:].partition("!")
            events += [CallStart(name), CallArguments("{}"), Markup(len(name) + 2)]
        if not self._text.startswith("!"):
            content, bang, rest = self._text.partition("!")
            events += [Content(content)] if content else []
            self._text = ""
            events += self.push(bang + rest) if bang else []
        return events

    def flush(self) -> list[Event]:
        return [Content(self._text)] if self._text else []


def behind_thoughts(chunks: list[str]) -> Split:
    return split(ReasoningSplitter(THINK_TAGS["kimi_k2"], after=Shouted()), chunks)


def test_what_follows_the_thoughts_goes_on_to_the_next_splitter() -> None:
    """Calls in thoughts are thoughts; those behind them are calls; the next splitter is flushed too."""
    assert "!" in ReasoningSplitter(THINK, after=Shouted()).markers
    text = "<think>!no!</think>a!f!b!"
    for chunks in ([text], list(text)):
        found = behind_thoughts(chunks)
        assert (found.reasoning, found.content, [call.name for call in found.calls]) == ("!no!", "ab!", ["f"])


def test_a_call_may_end_the_thoughts() -> None:
    """Where a family says so; its marker is the next splitter's."""
    text = "<think>so<|tool_calls_section_begin|>!f!"
    for chunks in ([text], list(text)):
        found = behind_thoughts(chunks)
        assert (found.reasoning, found.content) == ("so", "<|tool_calls_section_begin|>")
        assert [call.name for call in found.calls] == ["f"]


PIECES = st.sampled_from(["<think>", "</think>", "<", "</", "think>", "\n", " ", "a", "é", "<think", "/think>"])


@given(st.lists(PIECES, max_size=12), st.booleans())
def test_thoughts_do_not_depend_on_chunks(pieces: list[str], opened: bool) -> None:
    """F5, the universal property: as single characters, as pieces, as one; and nothing is lost but tags."""
    text = "".join(pieces)
    whole = split(ReasoningSplitter(THINK, opened=opened), [text])
    assert split(ReasoningSplitter(THINK, opened=opened), pieces) == whole
    assert split(ReasoningSplitter(THINK, opened=opened), list(text)) == whole
    assert text.endswith((whole.reasoning + "</think>" + whole.content, whole.reasoning + whole.content))


@given(st.text("ab<>", max_size=12), st.lists(st.text("ab<>", min_size=1, max_size=4), min_size=1, max_size=3))
def test_what_is_held_is_the_longest_end_that_may_become_a_marker(text: str, markers: list[str]) -> None:
    """`held_from`, against the plain definition of it."""
    starts = [
        start
        for start in range(len(text))
        if any(marker.startswith(text[start:]) and len(marker) > len(text) - start for marker in markers)
    ]
    assert held_from(text, tuple(markers)) == min(starts, default=len(text))
