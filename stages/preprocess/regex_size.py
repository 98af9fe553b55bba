"""How large the automaton of a regular expression becomes: `((a{1,1000}){1,1000}){1,1000}` is thirty characters.

Read only as far as that takes, in any dialect; what is wrong with an expression otherwise, its compiler finds.
"""

import re
from collections.abc import Iterator

from schemas.faults import RequestFault
from stages.preprocess.empty_loops import Piece, is_endless, may_be_empty

MAX_PATTERN = 8192
MAX_SIZE = 20_000
"""Places in the unrolled expression. An engine compiles that in well under a second."""

MAX_ENDLESS = 100
"""`*`, `+` and `{n,}` in the unrolled expression: compiling takes time by the square of those in a row, or worse."""

FREE_CLASS = 32
"""Characters of a class that cost no more than one; of a longer one each is a place of its own."""

MAX_GROUPS = 64
"""Groups within groups: compilers go down by recursion."""

_TOKEN = re.compile(
    r"\\[upxP]\{[^}]{0,64}\}|\\.|\((?:\?(?:<?[=!]|:|P?<[^>]{0,64}>|[a-zA-Z-]*:?))?|\)|\[\^?(?:\\.|[^\]\\])+\]|\[|"
    r"(?P<repeat>[*+?]|\{\d*(?:,\d*)?\})|\||.",
    re.DOTALL,
)
"""Every place of a pattern is read a bounded number of times, whatever is left open behind it."""

_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_BACK_REFERENCE = re.compile(r"\\(?:[1-9]|k<)")


def check_regex(pattern: str, path: str) -> int:
    """The size of the unrolled expression. Raises `RequestFault` for one that an engine could not hold."""
    if len(pattern) > MAX_PATTERN:
        raise RequestFault("invalid_request", f"{len(pattern)} characters, at most {MAX_PATTERN}", path)
    if "\0" in pattern:
        raise RequestFault("invalid_request", "may hold no NUL character", path)
    size = _size(pattern, path)
    if size > MAX_SIZE:
        raise RequestFault("invalid_request", f"is too large: more than {MAX_SIZE} places when it is unrolled", path)
    if _endless(pattern) > MAX_ENDLESS:
        reason = f"is too large: more than {MAX_ENDLESS} repetitions without end when it is unrolled"
        raise RequestFault("invalid_request", reason, path)
    if may_be_empty(_pieces(pattern))[1]:
        raise RequestFault("invalid_request", "repeats without end what may be empty", path)
    return size


def _size(pattern: str, path: str) -> int:
    groups: list[int] = []
    size = last = 0
    for found in _TOKEN.finditer(pattern):
        text = found[0]
        _refuse_unsupported(text, path)
        if text.startswith("("):
            groups.append(size)
            size = last = 0
            if len(groups) > MAX_GROUPS:
                raise RequestFault("invalid_request", f"more than {MAX_GROUPS} groups within each other", path)
        elif text == ")":
            if not groups:
                raise RequestFault("invalid_request", f"has a closing bracket too many at {found.start()}", path)
            last = max(size, 1)
            size = groups.pop() + last
        elif found["repeat"]:
            more = last * (repeats(text) - 1)
            size, last = size + more, last + more
        elif text != "|":
            last = max(len(text) - FREE_CLASS, 1) if text.startswith("[") else 1
            size += last
    if groups:
        raise RequestFault("invalid_request", "has an open bracket too many", path)
    return size


def _endless(pattern: str) -> int:
    """Repetitions without end, each as often as the quantifiers around it say."""
    outer: list[int] = []
    count = last = 0
    for found in _TOKEN.finditer(pattern):
        text = found[0]
        if text.startswith("("):
            outer.append(count)
            count = last = 0
        elif text == ")":
            last = count
            count += outer.pop()
        elif found["repeat"]:
            more = last * (repeats(text) - 1) + is_endless(text)
            count, last = count + more, last + more
        else:
            last = 0
    return count


def _pieces(pattern: str) -> Iterator[Piece]:
    for found in _TOKEN.finditer(pattern):
        text = found[0]
        if found["repeat"]:
            yield "repeat", text
        elif text.startswith("("):
            yield "open", text
        else:
            yield ("close" if text == ")" else "or" if text == "|" else "atom"), text


def _refuse_unsupported(piece: str, path: str) -> None:
    if _LOOKAROUND.match(piece):
        raise RequestFault("unsupported", "looking ahead or back cannot be held by a grammar", path)
    if piece == "[":
        raise RequestFault("invalid_request", "has a character class that is empty or open", path)
    if _BACK_REFERENCE.match(piece):
        raise RequestFault("unsupported", "references back cannot be held by a grammar", path)


def repeats(text: str) -> int:
    """How often a quantifier unrolls what it stands behind."""
    numbers = [int(number) for number in re.findall(r"\d{1,9}", text)]
    return max(numbers, default=1) or 1
