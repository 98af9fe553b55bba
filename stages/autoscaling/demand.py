"""How much is asked of a stage, in full replicas, and what is to be foreseen of it by what was seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf

from stages.autoscaling.rules import Rules
from stages.autoscaling.seen import Seen

SPANS = 64
"""At most so many spans are remembered: as many numbers as a person can look at."""

PER_START = 4
"""Spans within a start, where memory allows: rises are looked for within a start, and a span more."""


@dataclass(frozen=True)
class Span:
    """The least and the most that was asked for within a piece of time, by its number."""

    number: int
    low: float
    high: float


@dataclass(frozen=True)
class Demand:
    """What is known of it. `level` is asked for now, in full replicas; `backlog_s` the last one known, of `backlog_at`.

    The first look was at `since`, and what there was then is taken to have been needed: `begun` full replicas.
    """

    at: float = -inf
    since: float = inf
    level: float = 0.0
    backlog_s: float = 0.0
    backlog_at: float = -inf
    spans: tuple[Span, ...] = ()
    begun: float = 0.0

    def looked(self, rules: Rules, seen: Seen) -> "Demand":
        """With one look more."""
        if self.at == -inf:
            begun = seen.replicas * rules.down_busy
            return replace(self, at=seen.at, since=seen.at, backlog_at=seen.at, begun=begun).looked(rules, seen)
        first = self.at == self.since
        share = 1 - exp(-max(seen.at - self.at, 0.0) / rules.smooth_s) if rules.smooth_s and not first else 1.0
        level = self.level + share * (self._asked(rules, seen) - self.level)
        found = replace(self, at=max(seen.at, self.at), level=level, spans=self._with(rules, seen.at, level))
        return replace(found, backlog_s=seen.backlog_s, backlog_at=seen.at) if seen.backlog_s >= 0 else found

    def foreseen(self, rules: Rules) -> float:
        """The most of `remember_s`, but no more than what is asked for now and the largest rise within a start.

        Whatever rises more slowly can be met by replicas that are started then. Before `remember_s` has passed nobody
        knows how fast it rises.
        """
        highest = max((span.high for span in self.spans), default=0.0)
        if self.at - self.since < rules.remember_s:
            highest = max(highest, self.begun)
        else:
            highest = min(highest, self.level + self._rise(rules))
        return max(self.level, highest)

    def _asked(self, rules: Rules, seen: Seen) -> float:
        """What is served, and by how much what waits grows. Where work waits for long all are full."""
        waits = min(seen.backlog_s / rules.backlog_s, 1.0) if rules.backlog_s else float(seen.backlog_s > 0)
        full = 1.0 if seen.waiting and seen.backlog_s < 0 else waits
        asked = max(seen.busy, seen.computing, full, 0.0)
        passed = seen.at - self.backlog_at
        if seen.backlog_s >= 0 and passed > 0:
            asked += (seen.backlog_s - self.backlog_s) / passed
        return min(max(asked * seen.ready, 0.0), float(rules.most))

    def _with(self, rules: Rules, at: float, level: float) -> tuple[Span, ...]:
        number = _number(rules, at)
        spans = [span for span in self.spans if number - span.number <= rules.remember_s / _span_s(rules)]
        if spans and spans[-1].number >= number:
            last = spans.pop()
            return (*spans, Span(last.number, min(last.low, level), max(last.high, level)))
        return (*spans, Span(number, level, level))

    def _rise(self, rules: Rules) -> float:
        """The largest within a start, and what it takes to see it."""
        within = (rules.start_s + rules.smooth_s) / _span_s(rules)
        return max((_risen(self.spans[index:], within) for index in range(len(self.spans))), default=0.0)


def _risen(spans: Sequence[Span], within: float) -> float:
    """From the low of the first one."""
    first = spans[0]
    return max(span.high - first.low for span in spans if span.number - first.number <= within)


def _span_s(rules: Rules) -> float:
    return max(rules.start_s / PER_START, rules.remember_s / SPANS, 1.0)


def _number(rules: Rules, at: float) -> int:
    return int(at // _span_s(rules))
