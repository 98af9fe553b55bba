r"""Escapes that models write: a pair such as `\ud83d\ude00` is a character, half of one is none and becomes U+FFFD."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.families import CONSTRAINED, TOOL_FAMILIES
from schemas.ticket import AnswerSpec
from stages.postprocess.calls import Calls
from stages.postprocess.families import splitter_for
from stages.postprocess.parts import Parts
from stages.postprocess.splitter import CallArguments, CallEnd, CallStart, Content, Event, Markup, Reasoning
from stages.postprocess.surrogates import without_surrogates
from stages.postprocess.tool_calls.sections import DEEPSEEK, KIMI_K2, Marks
from tests.unit.postprocess.splitting import split


def _section(marks: Marks) -> str:
    begin = marks.begin + marks.call_begin
    return begin + "f" + marks.separator + '{"a": "%s", "%s": 1}' + marks.call_end + marks.end


_OBJECT = '{"name": "f%s", "arguments": {"a": "%s"}}'
_TEXT = r'{"name": "f%s", "arguments": "{\"a\": \"%s\"}"}'
_PYTHONIC = """[f(a="%s", b=['%s'])]"""

TEMPLATES = {
    "deepseek_v3": [_section(DEEPSEEK)],
    "deepseek_v31": [_section(DEEPSEEK)],
    "glm45": ["<tool_call>f<arg_key>a</arg_key><arg_value>%s</arg_value></tool_call>%s"],
    "granite": [f"<|tool_call|>[{_OBJECT}]"],
    "harmony": ['<|channel|>commentary to=functions.f<|message|>{"a": "%s", "%s": 1}<|call|>'],
    "hermes": [f"<tool_call>{_OBJECT}</tool_call>", f"<tool_call>{_TEXT}</tool_call>"],
    "json_arguments": ['{"a": "%s", "%s": 1}'],
    "json_list": [f"[{_OBJECT}]", f"[{_TEXT}]"],
    "kimi_k2": [_section(KIMI_K2)],
    "lfm2": [f"<|tool_call_start|>{_PYTHONIC}<|tool_call_end|>", f"<|tool_call_start|>[{_OBJECT}]"],
    "llama3_json": [_OBJECT, _TEXT],
    "llama4_json": [_OBJECT, _TEXT],
    "llama4_pythonic": [_PYTHONIC],
    "minimax_m2": ['<invoke name="f"><parameter name="a">%s</parameter></invoke>%s'],
    "mistral": [f"[TOOL_CALLS][{_OBJECT}]", '[TOOL_CALLS]f[ARGS]{"a": "%s", "%s": 1}'],
    "nemotron_json": [f"<TOOLCALL>[{_OBJECT}]</TOOLCALL>"],
    "phi4_mini_json": [f"<|tool_call|>[{_OBJECT}]<|/tool_call|>"],
    "pythonic": [_PYTHONIC, f"[{_OBJECT}]"],
    "qwen3_coder": ["<function=f><parameter=a>\n%s\n</parameter></function>%s"],
}
ESCAPES = [r"\ud83d", r"\ude00", r"\ud83d\ude00", r"\uDC00", r"\uD800", r"\U0001f600", r"\U0000dfff", r"\\", "a", "é"]
WRITTEN = st.lists(st.sampled_from(ESCAPES), max_size=5).map("".join)


def test_every_family_is_here() -> None:
    """A new one needs its template, or what follows says nothing of it."""
    assert set(TEMPLATES) == {*TOOL_FAMILIES, *CONSTRAINED}


@pytest.mark.parametrize("family", TEMPLATES)
@settings(max_examples=25)
@given(st.data(), WRITTEN, WRITTEN)
def test_no_family_tells_half_a_character(family: str, data: st.DataObject, first: str, second: str) -> None:
    """F1: whatever escapes a call holds, each piece can be sent (`split` looks), and the cut changes nothing."""
    text = data.draw(st.sampled_from(TEMPLATES[family])) % (first, second)
    at = data.draw(st.integers(0, len(text)))
    splitters = [splitter_for(AnswerSpec(tools=family, tool_name="f")) for _ in range(3)]
    whole, halves, chars = (
        split(splitter, chunks)
        for splitter, chunks in zip(splitters, ([text], [text[:at], text[at:]], list(text)), strict=True)
        if splitter is not None
    )
    assert whole == halves == chars


class Lossy:
    """A splitter whose calls hold half characters."""

    markers = frozenset[str]()

    def push(self, text: str) -> list[Event]:
        return [Reasoning(text), Content(text), Markup(1), CallStart("f\ud800"), CallArguments("\ud83d\ude00\udc00")]

    def flush(self) -> list[Event]:
        return [CallEnd()]


def test_a_splitter_that_did_could_not_stop_an_answer() -> None:
    """What enters the parts can be sent, whatever a family's decoder makes of an answer."""
    parts = Parts(Lossy(), None, Calls(str))
    parts.push("x")
    parts.flush()
    pieces = parts.calls.take() or []
    assert [(piece.name, piece.arguments) for piece in pieces] == [("f\ufffd", "😀\ufffd")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("é😀\ufeff", "é😀\ufeff"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d", "\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83dx\ud83d\ud83d\ude00", "\ufffdx\ufffd😀"),
    ],
)
def test_without_surrogates(text: str, expected: str) -> None:
    """Pairs become the character that they mean, one U+FFFD stands for each half that is alone."""
    assert without_surrogates(text) == expected
