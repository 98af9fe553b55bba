"""Where two servers' answers differ, and which of the differences are known. No I/O."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from load.parity_answer import Answer, Choice, Entry
from load.parity_ask import Asked

NEAR_TIE = 0.01
"""Two candidates whose logprobs differ by less: another batch may choose the other one. Also how exact logprobs are."""

SHOWN = 160


@dataclass(frozen=True)
class Difference:
    """`what` of a question's answer differs, asked that `way`. `near_tie`: it follows from one, which is said."""

    question: str
    way: str
    what: str
    reference: Any
    ours: Any
    near_tie: str = ""


@dataclass(frozen=True)
class Known:
    """One line of the table of known differences: all that may differ for a question, and why."""

    question: str
    what: frozenset[str]
    reason: str


def compare(reference: Mapping[str, Asked], ours: Mapping[str, Asked]) -> list[Difference]:
    """Everything that differs, in the order of the questions."""
    return [each for name, asked in reference.items() for each in _compare_asked(name, asked, ours[name])]


def _compare_asked(name: str, reference: Asked, ours: Asked) -> Iterator[Difference]:
    yield from _compare_answers(name, "whole", reference.whole, ours.whole, reference.margins)
    if reference.streamed and ours.streamed:
        yield from _compare_answers(name, "streamed", reference.streamed, ours.streamed, reference.margins)
        yield from _own_ways(name, ours)


def _own_ways(name: str, ours: Asked) -> Iterator[Difference]:
    """What is streamed has to be what comes whole, whatever the reference does."""
    assert ours.streamed is not None
    if not ours.whole.status == ours.streamed.status == 200:  # against the reference each stands by itself
        return
    for each in _compare_answers(name, "streamed, not whole", ours.whole, ours.streamed, None):
        if each.what not in ("form", "usage") or ours.streamed.usage:  # a stream has its usage where it is asked for
            yield each


def _compare_answers(
    name: str, way: str, reference: Answer, ours: Answer, margins: Answer | None
) -> Iterator[Difference]:
    def differ(what: str, one: object, other: object, near_tie: str = "") -> Iterator[Difference]:
        if one != other:
            yield Difference(name, way, what, one, other, near_tie)

    yield from differ("form", [], ours.flaws)
    if reference.status != ours.status:
        yield from differ("status", _said(reference), _said(ours))
        return
    if not reference.flaws:  # an error of its that stands in no envelope cannot be read
        yield from differ("error", bool(reference.message), bool(ours.message))
    yield from differ("value", reference.value, ours.value)
    yield from differ("choices", sorted(reference.choices), sorted(ours.choices))
    tie = ""
    for index in sorted(reference.choices.keys() & ours.choices.keys()):
        one, other = reference.choices[index], ours.choices[index]
        beside = margins.choices.get(index) if margins else None
        tie = (_near_tie(one.text, other.text, beside) if beside else "") or tie
        for what, left, right in _parts(one, other):
            yield from differ(what, left, right, tie)
    yield from differ("usage", reference.usage, ours.usage, tie)


def _said(answer: Answer) -> str:
    return f"{answer.status} {answer.message}".strip()[:SHOWN]


def _parts(reference: Choice, ours: Choice) -> Iterator[tuple[str, Any, Any]]:
    yield "text", reference.text, ours.text
    yield "reasoning", reference.reasoning, ours.reasoning
    yield "tool_calls", _calls(reference), _calls(ours)
    yield "finish_reason", reference.finish, ours.finish
    yield "stop_reason", reference.stop_reason, ours.stop_reason
    if different := _first_entry(reference.logprobs, ours.logprobs):
        yield "logprobs", *different


def _calls(choice: Choice) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in choice.calls]


def _first_entry(reference: list[Entry] | None, ours: list[Entry] | None) -> tuple[Any, Any] | None:
    """The first entries that differ, or how many there are."""
    if reference is None or ours is None:
        return None if reference == ours else (_length(reference), _length(ours))
    for one, other in zip(reference, ours, strict=False):
        if not _same_entry(one, other):
            return _shown(one), _shown(other)
    return None if len(reference) == len(ours) else (len(reference), len(ours))


def _length(entries: list[Entry] | None) -> int | None:
    return None if entries is None else len(entries)


def _shown(entry: Entry) -> str:
    return f"{entry.token!r} {entry.logprob} {entry.top} {entry.offset}"[:SHOWN]


def _same_entry(one: Entry, other: Entry) -> bool:
    same_tops = one.top.keys() == other.top.keys() and all(_close(one.top[key], other.top[key]) for key in one.top)
    return (one.token, one.offset) == (other.token, other.offset) and same_tops and _close(one.logprob, other.logprob)


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < NEAR_TIE or max(one, other) < -20  # beyond that, float32 has nothing to say


def _near_tie(one: str, other: str, margins: Choice) -> str:
    """Where the texts part at a near tie, "" where they do not."""
    if one == other or margins.text != one or not margins.logprobs:
        return ""
    at, reached = _parting(one, other), 0
    for position, entry in enumerate(margins.logprobs):
        reached += len(entry.token)
        if reached > at:
            ranked = sorted(entry.top.values(), reverse=True)
            margin = ranked[0] - ranked[1] if len(ranked) > 1 else float("inf")
            return f"token {position}, margin {margin:.4f}" if margin < NEAR_TIE else ""
    return ""


def _parting(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def known_differences(page: str) -> list[Known]:
    """The lines of the page's tables that begin with names of questions in backticks: names | what | … | reason."""
    found: list[Known] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        names = re.findall(r"`([a-z0-9-]+)`", cells[0])
        if line.startswith("| `") and names and len(cells) >= 3:
            what = frozenset(part.strip() for part in cells[1].split(","))
            found += [Known(name, what, cells[-1]) for name in names]
    return found


def unlisted(differences: Iterable[Difference], known: Iterable[Known]) -> list[Difference]:
    """Those that are neither known nor follow from a near tie."""
    listed = {(each.question, what) for each in known for what in each.what}
    return [each for each in differences if not each.near_tie and (each.question, each.what) not in listed]


def outdated(differences: Iterable[Difference], known: Iterable[Known]) -> list[str]:
    """What is listed and is no difference any more."""
    there = {(each.question, each.what) for each in differences}
    listed = {(each.question, what) for each in known for what in each.what}
    return [f"{question}: {what}" for question, what in sorted(listed - there)]
