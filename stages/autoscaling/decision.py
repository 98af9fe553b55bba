"""How many replicas there should be: a pure function of the rules, what was seen, and a little memory."""

from dataclasses import dataclass, field, replace
from math import ceil, inf, isfinite

from stages.autoscaling.demand import Demand
from stages.autoscaling.rules import Rules
from stages.autoscaling.seen import Seen

WHOLE = 1e-6
"""So little more than a whole number of replicas is that number: sums of shares are not exact."""


@dataclass(frozen=True)
class Memory:
    """Of what was seen before. `up_at`: when there were more; `low_since`: since when fewer would do.

    `worked_at`: when there was any work (the first look counts as one).
    """

    demand: Demand = field(default_factory=Demand)
    up_at: float = -inf
    low_since: float = inf
    worked_at: float = -inf


@dataclass(frozen=True)
class Decision:
    """So many replicas, and what decided it, for a person."""

    replicas: int
    why: str


def decide(rules: Rules, memory: Memory, seen: Seen) -> tuple[Decision, Memory]:
    """The replicas to ask for now, and what to give to the next call. Refuses no reading (see `Seen.sane`)."""
    if not isfinite(seen.at):
        return Decision(_within(rules, max(seen.replicas, 0)), "nobody knows what time it is"), memory
    seen = seen.sane()
    memory = _remembered(rules, memory, seen)
    wanted, why = _judged(rules, memory, seen)
    allowed = _within(rules, wanted)
    if allowed != wanted:
        why += f"; {rules.least} to {rules.most} are allowed"
    if allowed > seen.replicas:
        memory = replace(memory, up_at=seen.at, low_since=inf)
    elif allowed < seen.replicas:
        memory = replace(memory, low_since=inf)
    change = f": {seen.replicas} -> {allowed}" if allowed != seen.replicas else f": {allowed} it stays"
    return Decision(allowed, why + change), memory


def _remembered(rules: Rules, memory: Memory, seen: Seen) -> Memory:
    demand = memory.demand.looked(rules, seen)
    works = seen.waiting > 0 or seen.backlog_s > 0 or seen.busy > 0 or seen.computing > 0
    worked_at = seen.at if works or memory.worked_at == -inf else memory.worked_at
    too_many = _size(demand.foreseen(rules), rules.down_busy) < seen.replicas
    low_since = min(memory.low_since, seen.at) if too_many else inf
    return replace(memory, demand=demand, worked_at=worked_at, low_since=low_since)


def _judged(rules: Rules, memory: Memory, seen: Seen) -> tuple[int, str]:
    """Before limits."""
    demand = memory.demand
    foreseen = demand.foreseen(rules)
    drain = _drain(rules, seen)
    needed = _size(foreseen + drain, rules.up_busy)
    if seen.waiting and not max(seen.replicas, needed):
        return 1, f"{seen.waiting} wait and there is no replica"
    if needed > seen.replicas and _has_cause(seen):
        return needed, _why_more(rules, seen, foreseen, drain)
    if not rules.least and not seen.waiting and seen.at - memory.worked_at >= rules.idle_s:
        return 0, f"no work for {seen.at - memory.worked_at:.0f} s"
    enough = _size(foreseen, rules.down_busy)
    if enough < seen.replicas:
        held = _held(rules, memory, seen)
        most = f"{foreseen:.1f} full replicas are foreseen"
        return (seen.replicas, f"{most}, {held}") if held else (max(enough, 1), most)
    return seen.replicas, f"{foreseen:.1f} full replicas are foreseen"


def _has_cause(seen: Seen) -> bool:
    """None are started from zero by memory alone."""
    return seen.replicas > 0 or seen.waiting > 0


def _held(rules: Rules, memory: Memory, seen: Seen) -> str:
    """Why there are not fewer, although they would do; "" where nothing is against it."""
    if seen.waiting and seen.backlog_s < 0:
        return f"but {seen.waiting} wait and nobody knows how long"
    if seen.backlog_s < 0:
        return "but nobody knows what waits"
    if seen.backlog_s > rules.backlog_s:
        return f"but {seen.backlog_s:.1f} s of work wait"
    if seen.at - memory.up_at < rules.cooldown_s:
        return f"but there were more {seen.at - memory.up_at:.0f} s ago"
    if seen.at - memory.low_since < rules.cooldown_s:
        return f"since {seen.at - memory.low_since:.0f} s"
    return ""


def _drain(rules: Rules, seen: Seen) -> float:
    """Full replicas more, so that what waits is gone in time."""
    if not seen.backlog_s > rules.backlog_s:
        return 0.0
    return min(seen.backlog_s * seen.ready / max(rules.drain_s, 1.0), float(rules.most))


def _why_more(rules: Rules, seen: Seen, foreseen: float, drain: float) -> str:
    if drain:
        return f"{seen.backlog_s:.1f} s of work wait, more than {rules.backlog_s:g} s, and {foreseen:.1f} are needed"
    return f"{foreseen:.1f} full replicas are foreseen, at {rules.up_busy:.0%} each"


def _size(full: float, busy: float) -> int:
    return ceil(full / busy - WHOLE)


def _within(rules: Rules, count: int) -> int:
    return min(max(count, rules.least), rules.most)
