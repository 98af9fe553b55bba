"""Stop strings in text that comes in pieces: group A of the known faults."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stages.postprocess.stops import StopMatch, StopMatcher


def released(stops: list[str], pieces: Iterable[str], include: bool = False) -> tuple[list[str], StopMatch | None]:
    """What every push lets through, then the flush; and the match."""
    matcher = StopMatcher(stops, include)
    return [*(matcher.push(piece) for piece in pieces), matcher.flush()], matcher.match


def test_a_stop_over_several_pieces_never_shows() -> None:
    """A9: `DEF`, `G`, `HI`, `J`: nothing of it is streamed."""
    assert released(["DEFGHIJ"], ["DEF", "G", "HI", "J"]) == (["", "", "", "", ""], StopMatch("DEFGHIJ", 0, 7))


def test_what_only_looked_like_a_stop_comes_out() -> None:
    """A9: `DEF`, `G`, `HX`."""
    assert released(["DEFGHIJ"], ["DEF", "G", "HX"]) == (["", "", "DEFGHX", ""], None)


def test_a_stop_whose_last_character_comes_alone() -> None:
    """A9: `\\nUser`, `:`: no `\\nUser`."""
    assert released(["\nUser:"], ["ok\nUser", ":"])[0] == ["ok", "", ""]


@pytest.mark.parametrize("stops", [["re", "he"], ["he", "re"]])
def test_the_earliest_in_the_text_wins(stops: list[str]) -> None:
    """A11: not the first in the list."""
    texts, match = released(stops, ["there"])
    assert ("".join(texts), match) == ("t", StopMatch("he", 1, 3))


@pytest.mark.parametrize("stops", [["he", "her"], ["her", "he"]])
@pytest.mark.parametrize("pieces", [["there"], ["t", "h", "e", "r", "e"], ["the", "re"]])
def test_at_one_place_the_first_in_the_list_wins(stops: list[str], pieces: list[str]) -> None:
    """A11: equal positions: list order, however the text is cut."""
    texts, match = released(stops, pieces)
    assert "".join(texts) == "t"
    assert match is not None
    assert match.stop == stops[0]


def test_a_match_that_waits_for_a_better_one_stands_at_the_end() -> None:
    """A11: `her` would have won over `he`, and does not come."""
    for pieces in (["the"], ["the", "x"], ["t", "he"]):
        texts, match = released(["her", "he"], pieces)
        assert ("".join(texts), match) == ("t", StopMatch("he", 1, 3))


def test_only_what_may_become_a_stop_is_held() -> None:
    """A15: `a</think>b<` holds back its last character, and the flush lets it out."""
    assert released(["<|im_end|>"], ["a</think>b<"]) == (["a</think>b", "<"], None)


def test_the_stop_itself_is_text_on_demand() -> None:
    """A13: `include_stop`."""
    assert released(["\n\n"], ["a", "\n", "\n", "b"], include=True) == (
        ["a", "", "\n\n", "", ""],
        StopMatch("\n\n", 1, 3),
    )
    assert released(["\n\n"], ["a", "\n", "\n", "b"])[0] == ["a", "", "", "", ""]


def test_an_empty_stop_matches_nothing() -> None:
    """A22: preprocess refuses it; here it can do no harm."""
    assert released([""], ["abc"]) == (["abc", ""], None)
    assert released(["", "x"], ["ab", "x"])[0] == ["ab", "", ""]


def test_no_stop_ends_below_min_tokens() -> None:
    """A18: one that ends within the barred text is none; one that ends behind it is."""
    matcher = StopMatcher(["ab"])
    assert matcher.push("ab", may_match=False) == "ab"
    assert matcher.push("a", may_match=False) == ""
    assert matcher.push("bc") == ""
    assert matcher.match == StopMatch("ab", 2, 4)


def test_nothing_follows_a_match() -> None:
    """Text behind a stop is no part of the answer."""
    matcher = StopMatcher(["x"])
    assert matcher.push("axb") == "a"
    assert matcher.push("c") == ""
    assert matcher.flush() == ""


LETTERS = st.text("ab", max_size=24)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4)


def expected(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The text as one piece: cut at the earliest stop, of several there the first in the list."""
    places = [(text.find(stop), rank) for rank, stop in enumerate(stops) if stop in text]
    if not places:
        return text, None
    start, rank = min(places)
    return text[: start + len(stops[rank])] if include else text[:start], stops[rank]


@given(LETTERS, STOPS, st.sets(st.integers(1, 24)), st.booleans())
@example("abbab", ["abba", "bb"], {1, 2, 3}, False)
def test_the_cut_does_not_depend_on_pieces(text: str, stops: list[str], places: set[int], include: bool) -> None:
    """The universal property, against a definition that sees the whole text."""
    edges = [0, *sorted(place for place in places if place < len(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    texts, match = released(stops, pieces, include)
    assert ("".join(texts), match.stop if match else None) == expected(text, stops, include)


@given(LETTERS, STOPS)
def test_only_beginnings_of_stops_are_held(text: str, stops: list[str]) -> None:
    """A15: what is held back is a proper prefix of a stop, all of it."""
    matcher = StopMatcher(stops)
    seen = ""
    for end, character in enumerate(text, start=1):
        seen += matcher.push(character)
        if matcher.match is not None:
            return
        held = text[len(seen) : end]
        assert matcher.holding == bool(held)
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)
