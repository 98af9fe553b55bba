"""JSON as it is being written: where a value ends is known from its quotes and brackets alone, at a cost that is linear
in its length. Whether it is valid JSON is found once, at its end.
"""

import json
import re
from collections.abc import Callable

from stages.postprocess.surrogates import without_surrogates
from stages.postprocess.tool_calls.source import NotACall, Reading, Source

Out = Callable[[str], None]
"""Takes the next piece of what was read."""

_OUTSIDE_STRINGS = re.compile(r'[^"{}\[\]]*+')
_INSIDE_STRINGS = re.compile(r'(?:[^"\\\x00-\x1f]++|\\.)*+', re.DOTALL)
_UP_TO_ESCAPE = re.compile(r'[^"\\]*+')
_HIGH_HALF = re.compile(r"\\u[dD][89abAB]")
_LOW_HALF = re.compile(r"\\u[dD][c-fC-F]")
_SCALAR = re.compile(r"[\w+.\-]*+")


def is_valid(text: str) -> bool:
    """Whether it is one JSON value, by the letter: no NaN, which Python's own reader takes."""
    try:
        # Numbers are not made into Python's: one of thousands of digits is valid, and refused there.
        json.loads(text, parse_int=len, parse_float=len, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def value(source: Source, out: Out) -> Reading[None]:
    """Reads one value, as it was written. Raises `NotACall`."""
    char = yield from source.skip_space()
    if char and char in "{[":
        yield from container(source, out)
    elif char == '"':
        source.at += 1
        yield from string(source, out)
    elif char:
        yield from _scalar(source, out)
    else:
        raise NotACall


def container(source: Source, out: Out) -> Reading[None]:
    """Reads an object or a list up to the bracket that closes it.

    As it was written, except for control characters within strings: they are escaped, since a model that breaks a
    line there can mean nothing else. Raises `NotACall` where the text ends before.
    """
    depth = 0
    within = False
    begin = source.at
    while True:
        pattern = _INSIDE_STRINGS if within else _OUTSIDE_STRINGS
        found = pattern.match(source.text, source.at)
        source.at = found.end() if found else source.at
        char = source.text[source.at : source.at + 1]
        if char in ("", "\\"):  # a backslash whose second half is missing
            out(source.text[begin : source.at])
            yield from _more(source)
            begin = source.at
            continue
        source.at += 1
        if char == '"':
            within = not within
        elif within:
            out(source.text[begin : source.at - 1] + json.dumps(char)[1:-1])
            begin = source.at
        else:
            depth += 1 if char in "{[" else -1
            if not depth:
                out(source.text[begin : source.at])
                return


def string(source: Source, out: Out) -> Reading[None]:
    """Reads a string behind its opening quote, closing quote included; its text, without escapes, goes to `out`.

    Raises `NotACall` where the text ends before, or has an escape that there is not.
    """
    while True:
        found = _UP_TO_ESCAPE.match(source.text, source.at)
        end = found.end() if found else source.at
        if end > source.at:
            plain, source.at = source.text[source.at : end], end
            out(plain)
        char = source.text[end : end + 1]
        if char == '"':
            source.at += 1
            return
        if char:
            yield from _escape(source, out)
        else:
            yield from _more(source)


def text(source: Source) -> Reading[str]:
    """Reads a string behind its opening quote. Raises `NotACall`."""
    pieces: list[str] = []
    yield from string(source, pieces.append)
    return "".join(pieces)


def _escape(source: Source, out: Out) -> Reading[None]:
    written = yield from _written_escape(source)
    try:
        meant = json.loads(f'"{written}"')
    except ValueError:
        raise NotACall from None
    source.at += len(written)
    out(without_surrogates(meant))


def _written_escape(source: Source) -> Reading[str]:
    """The escape sequence that stands next, of a character's both halves where it takes two."""
    written = yield from source.chars(2)
    length = 6 if written == "\\u" else 2
    written = yield from source.chars(length)
    if len(written) == length and _HIGH_HALF.match(written):
        both = yield from source.chars(12)
        length = 12 if _LOW_HALF.match(both, 6) or "\\u".startswith(both[6:8]) else 6
        written = both[:length]
    if len(written) < length:
        yield from _more(source)
    return written


def _scalar(source: Source, out: Out) -> Reading[None]:
    """A number, true, false, null."""
    begin = source.at
    read = 0
    while True:
        found = _SCALAR.match(source.text, source.at)
        source.at = found.end() if found else begin
        read += source.at - begin
        out(source.text[begin : source.at])
        if source.at < len(source.text):
            break
        yield from _more(source)
        begin = source.at
    if not read:
        raise NotACall


def _more(source: Source) -> Reading[None]:
    if not (yield from source.more()):
        source.at = len(source.text)
        raise NotACall


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
