"""Endless repetitions of what may be empty, as in `(.*)*`: an engine tries all ways to split a text, for minutes.

The same for regular expressions and for rules of grammars.
"""

from collections.abc import Iterable
from typing import Literal

Piece = tuple[Literal["open", "close", "or", "repeat", "atom"], str]
"""`repeat` with its quantifier; `atom` with its text."""

EMPTY = ""
"""The text of an atom that may be empty."""


def is_endless(quantifier: str) -> bool:
    return quantifier in ("*", "+") or quantifier.replace(" ", "").endswith(",}")


def may_be_empty(pieces: Iterable[Piece]) -> tuple[bool, bool]:
    """Whether the whole may be empty, and whether any part of it is an endless repetition of what may be empty."""
    outer: list[tuple[bool, bool]] = []
    other, branch, before, last = False, True, True, False  # earlier branches, this one, this but its last piece, that
    loops = False
    after_repeat = False
    for kind, text in pieces:
        if kind == "open":
            outer.append((other, branch))
            other, branch = False, True
        elif kind == "close" and outer:
            last = other or branch
            other, before = outer.pop()
            branch = before and last
        elif kind == "or":
            other, branch = other or branch, True
        elif kind == "repeat" and not after_repeat:  # a second one only says lazy or possessive
            loops = loops or (last and is_endless(text))
            last = last or text in ("*", "?") or text.startswith(("{0", "{,"))
            branch = before and last
        elif kind == "atom":
            before, last = branch, text == EMPTY
            branch = before and last
        after_repeat = kind == "repeat"
    return other or branch, loops
