"""How much work a grammar is, in xgrammar's notation (EBNF) or in Lark's: refused is what no engine follows in time.

Read only as far as that takes; what is wrong with a grammar otherwise, its compiler finds.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from schemas.faults import RequestFault
from stages.preprocess.empty_loops import EMPTY, Piece, is_endless, may_be_empty
from stages.preprocess.regex_size import FREE_CLASS, MAX_ENDLESS, MAX_SIZE, check_regex, repeats

MAX_TEXT = 32 * 1024
MAX_RULES = 256
MAX_SYMBOLS = 4096
MAX_ENDLESS_IN_ALL = 256
MAX_ROUNDS = 32
"""How far what may be empty is followed from rule to rule."""

MAX_PAIRS = 8
"""Places where a rule of no fixed length stands beside itself (`word word`): each may be split in many ways."""

# What is not closed goes to the end: looked for from each place anew, it would take time by the square.
_PIECES = (
    r"(?P<text>\"(?:\\.|[^\"\\\n])*(?:\"i?|\\?\Z|(?=\n)))|(?P<rule>[?!]?[A-Za-z_][\w-]*(?:\.-?\d+)?\s*(?:::=|:))|"
    r"(?P<name>[A-Za-z_][\w-]*)|(?P<repeat>[*+?]|\{[\s\d,]*\}|~\s*\d+(?:\s*\.\.\s*\d+)?)|(?P<other>\S)"
)
_EBNF = re.compile(rf"(?P<comment>\#[^\n]*)|(?P<class>\[(?:\\.|[^\]\\])*(?:\]|\\?\Z))|{_PIECES}", re.DOTALL)
_LARK = re.compile(
    rf"(?P<comment>(?://|\#|%)[^\n]*)|(?P<regex>/(?:\\.|[^/\\\n])+(?:/[a-z]*|\\?\Z|(?=\n)))|{_PIECES}", re.DOTALL
)

Token = tuple[str, str]
"""Its kind (a group of the expressions above) and its text."""


def check_grammar(grammar: str, path: str) -> None:
    """Raises `RequestFault` for a grammar that an engine could not follow in time."""
    _at_most(len(grammar), MAX_TEXT, "characters", path)
    rules = _rules(grammar)
    _at_most(len(rules), MAX_RULES, "rules", path)
    _at_most(sum(len(body) for body in rules.values()), MAX_SYMBOLS, "symbols", path)
    endless = [sum(kind == "repeat" and is_endless(text) for kind, text in body) for body in rules.values()]
    _at_most(max(endless, default=0), MAX_ENDLESS, "repetitions without end in one rule", path)
    _at_most(sum(endless), MAX_ENDLESS_IN_ALL, "repetitions without end", path)
    tokens = [token for body in rules.values() for token in body]
    _at_most(_unrolled(tokens, path), MAX_SIZE, "places when it is unrolled", path)
    _refuse_empty_loops(rules, path)
    _refuse_splits(rules, path)


def _at_most(count: int, most: int, what: str, path: str) -> None:
    if count > most:
        raise RequestFault("invalid_request", f"is too large: more than {most} {what}", path)


def _rules(grammar: str) -> dict[str, list[Token]]:
    """What stands behind each name."""
    rules: dict[str, list[Token]] = {}
    body: list[Token] = []
    for found in (_EBNF if "::=" in grammar else _LARK).finditer(grammar):  # as vLLM tells them apart
        kind, text = found.lastgroup or "", found[0]
        if kind == "rule":
            body = rules.setdefault(re.split(r"[.:\s]", text.lstrip("?!"))[0], [])
            body.append(("other", "|"))
        elif kind != "comment":
            body.append((kind, text))
    return rules


def _unrolled(tokens: list[Token], path: str) -> int:
    """Places of all rules, each as often as the quantifiers around it say."""
    outer: list[int] = []
    size = last = 0
    for kind, text in tokens:
        if kind == "repeat":
            more = last * (repeats(text) - 1)
            size, last = size + more, last + more
        elif text in ("(", "["):
            outer.append(size)
            size = last = 0
        elif text in (")", "]") and outer:
            last = max(size, 1)
            size = outer.pop() + last
        elif text != "|":
            last = check_regex(text[1:].rpartition("/")[0], path) if kind == "regex" else max(len(text) - FREE_CLASS, 1)
            size += last
    return size + sum(outer)


def _refuse_empty_loops(rules: dict[str, list[Token]], path: str) -> None:
    empty: set[str] = set()
    found: dict[str, tuple[bool, bool]] = {}
    for _ in range(MAX_ROUNDS):
        found = {name: may_be_empty(_pieces(body[1:], empty)) for name, body in rules.items()}
        now = {name for name, (is_empty, _) in found.items() if is_empty}
        if now == empty:
            break
        empty = now
    for name, (_, loops) in found.items():
        if loops:
            raise RequestFault("invalid_request", f"repeats without end what may be empty, in {name[:64]}", path)


def _pieces(body: list[Token], empty: set[str]) -> Iterator[Piece]:
    for kind, text in body:
        if kind == "repeat":
            yield "repeat", text
        elif text in ("(", "["):
            yield "open", text
        elif text in (")", "]"):
            yield "close", text
            if text == "]":  # Lark's way to say that it may be missing
                yield "repeat", "?"
        else:
            yield ("or", text) if text == "|" else ("atom", EMPTY if text in empty or text == '""' else text)


def _refuse_splits(rules: dict[str, list[Token]], path: str) -> None:
    """Each text of `a ::= a a | "x"` can be read in countless ways, and an engine follows them all."""
    pairs = 0
    lengths: dict[str, int | None] = {}
    for name, body in rules.items():
        for left, count in _pairs(body):
            if left == name:
                raise RequestFault("invalid_request", f"is ambiguous: {name[:64]} consists of itself, twice", path)
            if _length(left, rules, lengths) is None:
                pairs += count
    if pairs > MAX_PAIRS:
        raise RequestFault("invalid_request", f"is ambiguous: more than {MAX_PAIRS} times a rule follows itself", path)


def _pairs(body: list[Token]) -> Iterator[tuple[str, int]]:
    """The rules that stand beside themselves, and how often."""
    flat = [token for token in body if token[1] not in ("(", ")")]
    for (kind, text), (kind2, text2) in pairwise(flat):
        if kind == "name" and kind2 == "repeat" and repeats(text2) > 1:
            yield text, repeats(text2) - 1
        elif kind == "name" and text2 == text:
            yield text, 1


def _length(name: str, rules: dict[str, list[Token]], known: dict[str, int | None]) -> int | None:
    """Pieces of text that a rule stands for, None if their number may vary, as it does where a rule holds itself."""
    if name not in known:
        known[name] = None
        lengths = {_sum(part, rules, known) for part in _alternatives(rules.get(name, []))}
        known[name] = lengths.pop() if len(lengths) == 1 else None
    return known[name]


def _alternatives(body: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = []
    for token in body:
        if token[1] == "|":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _sum(part: list[Token], rules: dict[str, list[Token]], known: dict[str, int | None]) -> int | None:
    total = 0
    for kind, text in part:
        if kind in ("repeat", "other"):  # a group may hold alternatives of its own
            return None
        length = _length(text, rules, known) if kind == "name" else 1
        if length is None:
            return None
        total += length
    return total
