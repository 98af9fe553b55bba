"""`[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, and since its tokenizer version 11 `[TOOL_CALLS]name[ARGS]{…}`."""

import re

from stages.postprocess.tool_calls import json_text
from stages.postprocess.tool_calls.json_calls import NAME_LIMIT, Arguments, JsonCall, call_list
from stages.postprocess.tool_calls.source import GrammarSplitter, NotACall, Reading, Source

MARKER, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_WORD = re.compile(r"[\w.:/\-]")


def mistral() -> GrammarSplitter:
    """A splitter for one answer."""
    return GrammarSplitter(_grammar, frozenset({MARKER, ARGS, CALL_ID}))


def _grammar(source: Source) -> Reading[None]:
    return source.split(_calls, MARKER)


def _calls(source: Source) -> Reading[None]:
    source.at += len(MARKER)
    char = yield from source.skip_space()
    if char == "[":
        yield from call_list(source)
    elif char == "{":
        yield from JsonCall(source).read()
    else:
        yield from _named(source)


def _named(source: Source) -> Reading[None]:
    """Reads `name`, `[CALL_ID]id` if it is there, `[ARGS]`, which may be missing, and the arguments."""
    name = yield from _word(source)
    yield from source.skip_space()
    if (yield from source.take(CALL_ID)):
        yield from _word(source)
    yield from source.take(ARGS)
    if not name or (yield from source.skip_space()) != "{":
        raise NotACall
    source.start(name)
    arguments = Arguments(source)
    yield from json_text.container(source, arguments.add)
    arguments.end()


def _word(source: Source) -> Reading[str]:
    word = ""
    while len(word) <= NAME_LIMIT and _WORD.match(char := (yield from source.char())):
        word += char
        source.at += 1
    return word
