"""How large the automaton of a regular expression becomes: `((a{1,1000}){1,1000}){1,1000}` is thirty characters.

Read only as far as that takes, in any dialect; what is wrong with an expression otherwise, its compiler finds.
"""

import re

from schemas.faults import RequestFault

MAX_PATTERN = 8192
MAX_SIZE = 20_000
"""Places in the unrolled expression. An engine compiles that in well under a second."""

MAX_GROUPS = 64
"""Groups within groups: compilers go down by recursion."""

_TOKEN = re.compile(
    r"\\[upxP]\{[^}]*\}|\\.|\((?:\?(?:<?[=!]|:|P?<[^>]*>|[a-zA-Z-]*:?))?|\)|\[\^?(?:\\.|[^\]\\])+\]|\[|"
    r"(?P<repeat>[*+?]|\{\d*,?\d*\})|\||.",
    re.DOTALL,
)
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
            more = last * (_repeats(text) - 1)
            size, last = size + more, last + more
        elif text != "|":
            size, last = size + 1, 1
    if groups:
        raise RequestFault("invalid_request", "has an open bracket too many", path)
    return size


def _refuse_unsupported(piece: str, path: str) -> None:
    if _LOOKAROUND.match(piece):
        raise RequestFault("unsupported", "looking ahead or back cannot be held by a grammar", path)
    if piece == "[":
        raise RequestFault("invalid_request", "has a character class that is empty or open", path)
    if _BACK_REFERENCE.match(piece):
        raise RequestFault("unsupported", "references back cannot be held by a grammar", path)


def _repeats(text: str) -> int:
    """How often a quantifier unrolls what it stands behind."""
    numbers = [int(number) for number in re.findall(r"\d{1,9}", text)]
    return max(numbers, default=1) or 1
