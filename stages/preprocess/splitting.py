"""How a byte-level tokenizer takes a text apart into words: its own rules, read from tokenizer.json, for Python's `re`.

Only for texts of characters whose kind (letter, number, blank) is the same in every version of Unicode since 3.2: then
two regular expression engines see the same. What is not understood of the rules, or not stable in a text, is `None`:
the tokenizer does it by itself then.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The rule of `ByteLevel` itself (https://github.com/openai/gpt-2/blob/master/src/encoder.py)."""

_BLANK = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_DISPUTED = (0x17F, 0x180E)
"""The long s is an `s` too where case does not count, if an engine knows that. The other was a blank for some years."""

_PICTURES = "\U0001f300-\U0001faff"
"""Emoji: whatever is assigned there is neither a letter nor a number nor a blank."""

_KINDS = ("L", "M", "N", "P", "S", "Lu", "Ll", "Lt", "Lm", "Lo")
_GROUPS = ("(?:", "(?!", "(?=", "(?i:")


class _UnknownRuleError(Exception):
    """Something in a regular expression that may mean another thing here."""


@dataclass(frozen=True)
class Splitter:
    """Steps that take a text apart one after the other, each of them what the one before left.

    `composed`: the tokenizer composes characters first (NFC), so only texts whose characters are.
    """

    steps: tuple[re.Pattern[str], ...]
    composed: bool = False

    def words(self, text: str) -> list[str] | None:
        """The words that no token reaches across, together the whole text; `None` where that is not known."""
        if _unstable().search(text) or (self.composed and not unicodedata.is_normalized("NFC", text)):
            return None
        found = [text]
        for step in self.steps:
            found = [word for piece in found for word in step.findall(piece)]
        return found if sum(map(len, found)) == len(text) else None


def splitter(pre_tokenizer: Any, normalizer: Any = None) -> Splitter | None:
    """Of these parts of a tokenizer.json; `None` where they are none that are known, or not byte-level."""
    try:
        if normalizer is not None and normalizer["type"] != "NFC":
            return None
        rules = cast("list[dict[str, Any]]", pre_tokenizer.get("pretokenizers") or [pre_tokenizer])
        steps = tuple(step for rule in rules for step in _steps(rule))
    except (_UnknownRuleError, re.error, AttributeError, KeyError, TypeError, ValueError):
        return None
    return Splitter(steps, normalizer is not None) if steps and rules[-1]["type"] == "ByteLevel" else None


def _steps(rule: dict[str, Any]) -> Iterator[re.Pattern[str]]:
    if rule["type"] == "Digits" and rule["individual_digits"]:
        yield re.compile(f"[{_kind('N')}]|[^{_kind('N')}]+")
    elif rule["type"] == "Split" and rule["behavior"] == "Isolated" and not rule.get("invert"):
        yield re.compile(_translated(rule["pattern"]["Regex"]))
    elif rule["type"] == "ByteLevel" and not rule["add_prefix_space"]:
        if rule.get("use_regex", True):
            yield re.compile(_translated(GPT2))
    else:
        raise _UnknownRuleError(rule["type"])


def _translated(pattern: str) -> str:
    """The same rule with classes of characters written out. Raises `_UnknownRuleError` for what it does not know."""
    out: list[str] = []
    in_set = False
    at = 0
    while at < len(pattern):
        piece = _next(pattern, at, in_set)
        at += len(piece)
        if piece in ("[", "]"):
            in_set = piece == "["
        out.append(_meaning(piece, in_set) if piece[0] == "\\" else piece)
    return "".join(out)


def _next(pattern: str, at: int, in_set: bool) -> str:
    """The next piece that means one thing."""
    rest = pattern[at : at + 4]
    if rest[0] == "\\":
        return pattern[at : pattern.index("}", at) + 1] if rest[1:2] in ("p", "P") else rest[:2]
    if in_set:
        if rest[0] == "[" or rest[:2] == "&&":
            raise _UnknownRuleError(rest)
        return rest[0]
    if rest[0] == "(":
        found = next((group for group in _GROUPS if rest.startswith(group)), None)
        if found is None:
            raise _UnknownRuleError(rest)
        return found
    if rest[0] in ".^$" or rest[:2] in ("[]", "}+") or rest[:3] == "[^]":
        raise _UnknownRuleError(rest)
    return rest[0]


def _meaning(escape: str, in_set: bool) -> str:
    name = escape[1]
    if name == "S" and not in_set:
        return f"[^{_BLANK}]"
    if name in "rnt" or not name.isalnum():
        return escape
    if name == "s":
        members = _BLANK
    elif name == "p" and escape[3:-1] in _KINDS:
        members = _kind(escape[3:-1])
    else:
        raise _UnknownRuleError(escape)
    return members if in_set else f"[{members}]"


@cache
def _stable() -> dict[int, str]:
    """The characters of the basic plane whose kind never changed, with it."""
    old = unicodedata.ucd_3_2_0
    kinds = {point: unicodedata.category(chr(point)) for point in range(0x10000) if point not in _DISPUTED}
    assigned = {point: kind for point, kind in kinds.items() if kind not in ("Cn", "Cs")}
    return {point: kind for point, kind in assigned.items() if old.category(chr(point)) == kind}


@cache
def _kind(name: str) -> str:
    """The members of a class of stable characters, as a regular expression's set has them."""
    return _members(point for point, kind in _stable().items() if kind.startswith(name))


@cache
def _unstable() -> re.Pattern[str]:
    """Finds a character that is not stable."""
    return re.compile(f"[^{_members(_stable())}{_PICTURES}]")


def _members(points: Iterable[int]) -> str:
    ranges: list[list[int]] = []
    for point in sorted(points):
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in ranges)
