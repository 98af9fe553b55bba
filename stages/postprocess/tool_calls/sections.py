"""Calls in a section of their own, each between control tokens: Kimi K2 and DeepSeek V3, R1, V3.1.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>…

The older DeepSeeks write `function` there, then the name, and the arguments as a block of Markdown.
"""

import re
from dataclasses import dataclass

from stages.postprocess.tool_calls import json_text
from stages.postprocess.tool_calls.json_calls import NAME_LIMIT, Arguments
from stages.postprocess.tool_calls.source import GrammarSplitter, NotACall, Reading, Source


@dataclass(frozen=True)
class Marks:
    """The control tokens of a section, of a call in it, and between name and arguments."""

    begin: str
    end: str
    call_begin: str
    separator: str
    call_end: str


KIMI_K2 = Marks(
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
DEEPSEEK = Marks(
    "<\uff5ctool\u2581calls\u2581begin\uff5c>",
    "<\uff5ctool\u2581calls\u2581end\uff5c>",
    "<\uff5ctool\u2581call\u2581begin\uff5c>",
    "<\uff5ctool\u2581sep\uff5c>",
    "<\uff5ctool\u2581call\u2581end\uff5c>",
)

_NAME = re.compile(r"(?:functions\.)?([\w.\-]+?)(?::\d+)?")
FENCE = "```"


def sections(marks: Marks) -> GrammarSplitter:
    """A splitter for one answer."""

    def calls(source: Source) -> Reading[None]:
        yield from source.take(marks.begin)
        while True:
            yield from source.skip_space()
            yield from _call(source, marks)
            found = yield from source.behind_space(marks.call_begin, marks.end)
            if found != marks.call_begin:
                break
            source.expect_call()
        source.at += len(found)

    markers = frozenset(vars(marks).values())
    return GrammarSplitter(lambda source: source.split(calls, marks.begin, marks.call_begin), markers)


def _call(source: Source, marks: Marks) -> Reading[None]:
    if not (yield from source.take(marks.call_begin)):
        raise NotACall
    word = yield from _up_to(source, marks.separator)
    if (yield from source.skip_space()) != "{":
        word = yield from _up_to(source, "\n")
        yield from source.skip_space()
        yield from source.take(f"{FENCE}json")
        yield from source.skip_space()
    name = _NAME.fullmatch(word.strip())
    if name is None or (yield from source.char()) != "{":
        raise NotACall
    source.start(name[1])
    arguments = Arguments(source)
    yield from json_text.container(source, arguments.add)
    arguments.end()
    for closer in (FENCE, marks.call_end):
        found = yield from source.behind_space(closer)
        source.at += len(found)


def _up_to(source: Source, end: str) -> Reading[str]:
    """Reads up to `end`, and that. What stands before it. Raises `NotACall` where that is too long for a name."""
    word = ""
    while not (yield from source.next_is(end)):
        char = yield from source.char()
        if not char or len(word) > NAME_LIMIT:
            raise NotACall
        word += char
        source.at += 1
    source.at += len(end)
    return word
