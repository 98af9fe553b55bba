"""`[f(a=1, b="x"), g()]`: Llama 3.2 and 4 (there also between `<|python_start|>` and `<|python_end|>`), and others.

Calls stand at the start of the answer or behind the opening tag; any other list is text. Arguments become JSON, one
by one: each goes out when it is whole. A value is a Python literal, or true, false, null.
"""

import ast
import json
import re
import warnings
from functools import partial

from stages.postprocess.splitter import CallArguments, CallEnd
from stages.postprocess.surrogates import without_surrogates
from stages.postprocess.tool_calls.json_calls import JsonCall
from stages.postprocess.tool_calls.source import GrammarSplitter, NotACall, Reading, Source

OPENER, CLOSER = "<|python_start|>", "<|python_end|>"
NAME_LIMIT = 256

_NAME = re.compile(r"[\w.\-]")
_PLAIN = re.compile(r"""[^"'\\\n\r()\[\]{},]*+""")
_QUOTES = ('"""', "'''", '"', "'")
_JSON_WORDS = {"true": True, "false": False, "null": None}


def pythonic() -> GrammarSplitter:
    """A splitter for one answer."""
    calls = partial(_calls, opener=OPENER, closer=CLOSER)
    return GrammarSplitter(lambda source: source.split(calls, OPENER, at_start=("[",)), frozenset({OPENER, CLOSER}))


def lfm2() -> GrammarSplitter:
    """For LFM2: `<|tool_call_start|>[…]<|tool_call_end|>`, where its template shows a list of JSON."""
    opener, closer = "<|tool_call_start|>", "<|tool_call_end|>"
    calls = partial(_calls, opener=opener, closer=closer)
    return GrammarSplitter(lambda source: source.split(calls, opener), frozenset({opener, closer}))


def _calls(source: Source, *, opener: str, closer: str) -> Reading[None]:
    yield from source.skip_space()
    yield from source.take(opener)
    yield from source.expect("[")
    while True:
        if (yield from source.skip_space()) == "{":
            yield from JsonCall(source).read()
        else:
            yield from _call(source)
        if (yield from source.expect(",]")) == "]":
            break
        source.expect_call()
    found = yield from source.behind_space(closer)
    source.at += len(found)


def _call(source: Source) -> Reading[None]:
    """Reads `name(key=value, …)`. It has started with its first key, or its closing bracket."""
    yield from source.skip_space()
    name = yield from _name(source)
    yield from source.expect("(")
    separator = "{"
    while (yield from source.skip_space()) != ")":
        key = yield from _name(source)
        yield from source.expect("=")
        if not source.started:
            source.start(name)
        written = yield from _held_value(source)
        source.events.append(CallArguments(f"{separator}{json.dumps(key)}: {written}"))
        separator = ", "
        if (yield from source.skip_space()) == ",":
            source.at += 1
    source.at += 1
    if not source.started:
        source.start(name)
    source.events += [CallArguments("{}" if separator == "{" else "}"), CallEnd()]


def _name(source: Source) -> Reading[str]:
    name = ""
    while len(name) <= NAME_LIMIT and _NAME.match(char := (yield from source.char())):
        name += char
        source.at += 1
    if not name or name[0].isdigit():
        raise NotACall
    return name


def _held_value(source: Source) -> Reading[str]:
    """As `_value`; the text of one that is none is content."""
    source.hold()
    written = yield from _value(source)
    source.release()
    return written


def _value(source: Source) -> Reading[str]:
    """Reads a value up to the comma or bracket behind it; the same in JSON. Raises `NotACall`."""
    pieces: list[str] = []
    depth = 0
    while True:
        char = yield from source.char()
        if not char:
            raise NotACall
        if char in "\"'":
            pieces.append((yield from _string(source)))
        elif not depth and char in ",)":
            return _as_json("".join(pieces).strip())
        else:
            found = _PLAIN.match(source.text, source.at + 1)
            end = found.end() if found else source.at + 1
            pieces.append(source.text[source.at : end])
            source.at = end
            depth += (char in "([{") - (char in ")]}")
            if depth < 0:
                raise NotACall


def _string(source: Source) -> Reading[str]:
    """Reads a string literal, with line breaks escaped: a model that breaks a line in one can mean nothing else."""
    quote = yield from source.take(*_QUOTES)
    if len(quote) == 1 and (yield from source.take(quote)):
        return quote * 2
    pieces = [quote]
    while not (yield from source.next_is(quote)):
        found = _PLAIN.match(source.text, source.at)
        piece = found[0] if found else ""
        if not piece:
            escape = (yield from source.char()) == "\\"
            piece = yield from source.chars(2 if escape else 1)
        if not piece:
            raise NotACall
        pieces.append(piece.replace("\n", "\\n").replace("\r", "\\r"))
        source.at += len(piece)
    source.at += len(quote)
    return "".join([*pieces, quote])


def _as_json(literal: str) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):  # "\d" is one of the things that models write
            meant = _JSON_WORDS[literal] if literal in _JSON_WORDS else ast.literal_eval(literal)
        return without_surrogates(json.dumps(meant, ensure_ascii=False, allow_nan=False))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise NotACall from error
