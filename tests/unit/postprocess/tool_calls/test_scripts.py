"""Tool calls come out of an answer the same way however its text was cut: rows F1, F3 and F11 of the known faults."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.postprocess.splitter import CallArguments, CallStart, Content, Markup, Splitter
from stages.postprocess.tool_calls import source
from tests.unit.postprocess.splitting import split
from tests.unit.postprocess.tool_calls.scripts import SCRIPTS, Script


@pytest.mark.parametrize("name", SCRIPTS)
def test_whole(name: str) -> None:
    """Every script in one piece gives what is written beside it, and every code point is accounted for."""
    script = SCRIPTS[name]
    assert split(script.splitter(), [script.text]) == script.expected


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", SCRIPTS)
def test_streamed_is_whole(name: str, size: int) -> None:
    """F11: the parity of stream and whole, over all scripts."""
    script = SCRIPTS[name]
    chunks = [script.text[at : at + size] for at in range(0, len(script.text), size)]
    assert split(script.splitter(), chunks) == script.expected


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_cut(name: str) -> None:
    """F11: two pieces cut at every place, and a character by itself at every place, escapes and markers included."""
    script = SCRIPTS[name]
    for at in range(len(script.text)):
        before, char, after = script.text[:at], script.text[at], script.text[at + 1 :]
        assert split(script.splitter(), [before, char + after]) == script.expected
        assert split(script.splitter(), [before, char, after]) == script.expected


@pytest.mark.parametrize("name", [name for name, script in SCRIPTS.items() if "\\" in script.text])
def test_every_cut_behind_a_backslash(name: str) -> None:
    """F11: whatever was cut before, a push that ends within an escape changes nothing."""
    script = SCRIPTS[name]
    for behind in (at + 1 for at, char in enumerate(script.text) if char == "\\"):
        for other in range(len(script.text)):
            first, second = sorted((behind, other))
            chunks = [script.text[:first], script.text[first:second], script.text[second:]]
            assert split(script.splitter(), chunks) == script.expected


@given(st.data(), st.sampled_from(list(SCRIPTS.values())))
def test_any_cut(data: st.DataObject, script: Script) -> None:
    """F1, F11: at any places, F1's own among them: several closing brackets and the closing tag in one chunk."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(script.text)), max_size=8)))
    chunks = [script.text[start:end] for start, end in zip([0, *cuts], [*cuts, len(script.text)], strict=True)]
    assert split(script.splitter(), chunks) == script.expected


@pytest.mark.parametrize("name", SCRIPTS)
def test_complete_means_valid(name: str) -> None:
    """F1: what is told as a complete call can be parsed, by the letter of JSON."""
    for call in split(SCRIPTS[name].splitter(), list(SCRIPTS[name].text)).calls:
        if call.complete:
            assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize("name", SCRIPTS)
def test_cut_off_anywhere(name: str) -> None:
    """F3: an answer that ends early tells a beginning of what the whole one tells: no bracket is invented."""
    script = SCRIPTS[name]
    calls = script.expected.calls
    for length in range(len(script.text)):
        found = split(script.splitter(), [script.text[:length]]).calls
        for at, call in enumerate(found):
            assert call.name == calls[at].name
            assert calls[at].arguments.startswith(call.arguments)
            assert not call.complete or call == calls[at]


FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<|python_start|>"),
        *("<|channel|>", "<|message|>", "<|call|>", "final", "<|tool_call|>", "<|tool_call_start|>"),
        *("<function=", "<parameter=", ">", "</parameter>", "</function>", "<arg_key>", "</arg_key>", "<arg_value>"),
        *("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "```json"),
        *('"name"', '"arguments"', '"parameters"', '"type"', '"f"', "f", "1", "null", "é"),
        *("[", "]", "{", "}", ":", ",", ";", "(", ")", "=", '"', "'", "'''"),
        *("\\", "\\u12", "\\ud83d", "\\ude00", "\\n", " ", "\n"),
    ]
)
SPLITTERS = sorted({script.splitter for script in SCRIPTS.values()}, key=lambda new: new.__name__)


@given(st.lists(FRAGMENTS, max_size=25), st.sampled_from(SPLITTERS))
def test_nothing_raises_and_nothing_depends_on_chunks(fragments: list[str], new: Callable[[], Splitter]) -> None:
    """Whatever a model writes: no exception, all of it accounted for, the same in fragments and in characters."""
    text = "".join(fragments)
    whole = split(new(), [text])
    assert split(new(), fragments) == whole
    assert split(new(), list(text)) == whole


@pytest.mark.parametrize("limit", [3, 12, 20, 40])
def test_what_is_held_back_is_bounded(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit it is no call, wherever the text was cut; and nothing is lost."""
    monkeypatch.setattr(source, "HELD_LIMIT", limit)
    for script in SCRIPTS.values():
        whole = split(script.splitter(), [script.text])
        assert split(script.splitter(), list(script.text)) == whole
        halves = [script.text[: len(script.text) // 2], script.text[len(script.text) // 2 :]]
        assert split(script.splitter(), halves) == whole


def test_text_of_no_call_is_not_held_back() -> None:
    """Only the shortest end that may become a marker is; arguments come out as they come in."""
    splitter = SCRIPTS["hermes: one"].splitter()
    assert splitter.push("Hello, <tool") == [Content("Hello, ")]
    assert splitter.push("s> and") == [Content("<tools> and")]
    assert splitter.push(' <tool_call>{"name": "f", "arg') == [Content(" ")]
    assert [type(event) for event in splitter.push('uments": {"a')] == [Markup, CallStart, CallArguments, Markup]
    assert splitter.push('": "b') == [CallArguments('": "b'), Markup(5)]


def test_deep_nesting_is_no_valid_json() -> None:
    """What no reader could read is told, and not called complete; nothing raises."""
    script = SCRIPTS["constrained: arguments"]
    text = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"
    (call,) = split(script.splitter(), [text]).calls
    assert (call.arguments, call.complete) == (text, False)


def test_long_numbers_are_valid_json() -> None:
    """Python's own reader refuses them."""
    script = SCRIPTS["constrained: arguments"]
    (call,) = split(script.splitter(), ['{"a": ' + "1" * 5000 + "}"]).calls
    assert call.complete
