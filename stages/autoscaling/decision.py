"""How many replicas there should be: a pure function of the rules, what was seen, and a little memory."""

from dataclasses import dataclass, replace
from math import ceil, exp, inf

from stages.autoscaling.rules import Rules
from stages.autoscaling.seen import Seen

BUCKET_S = 15.0
"""Of so many seconds the highest demand is remembered."""

ROUNDING = 1e-9


@dataclass(frozen=True)
class Memory:
    """Of what was seen before. `demand` is in replicas that would be busy all the time, `work` in seconds of one.

    `peaks` are the highest demands of the last `remember_s`, by bucket of time.
    """

    at: float = -inf
    since: float = inf
    demand: float = 0.0
    work: float = 0.0
    peaks: tuple[tuple[int, float], ...] = ()
    up_at: float = -inf
    active_at: float = -inf


@dataclass(frozen=True)
class Decision:
    """So many replicas, and what decided it, for a person."""

    replicas: int
    why: str


def decide(rules: Rules, memory: Memory, seen: Seen) -> tuple[Decision, Memory]:
    """The replicas to ask for now, and what to give to the next call. Refuses no reading (see `Seen.sane`)."""
    seen = seen.sane()
    if seen.at > memory.at:
        memory = _with(rules, memory, seen)
    wanted, why = _wanted(rules, memory, seen)
    bounded = min(max(wanted, rules.least), rules.most)
    if bounded != wanted:
        why = f"{why}; the limits are {rules.least} and {rules.most}"
    if bounded > seen.replicas:
        memory = replace(memory, up_at=seen.at)
    return Decision(bounded, why), memory


def _with(rules: Rules, memory: Memory, seen: Seen) -> Memory:
    """Demand is what the ready replicas do, and what they would have to do more for the backlog not to grow."""
    first = memory.at == -inf
    passed = 0.0 if first else seen.at - memory.at
    work = memory.work if seen.backlog_s < 0 else seen.backlog_s * seen.ready
    growth = (work - memory.work) / passed if passed else 0.0
    now = max(_busy(rules, seen) * seen.ready + growth, 0.0)
    weight = 1.0 if first or not rules.smooth_s else 1 - exp(-passed / rules.smooth_s)
    demand = memory.demand + (now - memory.demand) * weight
    active = bool(seen.waiting) or seen.busy > 0 or seen.backlog_s > 0 or first
    return replace(
        memory,
        at=seen.at,
        since=min(memory.since, seen.at),
        demand=demand,
        work=work,
        peaks=_peaks(rules, memory, seen.at, demand),
        active_at=seen.at if active else memory.active_at,
    )


def _busy(rules: Rules, seen: Seen) -> float:
    """Where nobody tells how busy a stage is, its backlog does: at the limit of that it is busy all the time."""
    told = max(seen.busy, seen.computing)
    if told >= 0:
        return told
    if seen.backlog_s < 0:
        return 1.0
    return min(seen.backlog_s / rules.backlog_s, 1.0) if rules.backlog_s else float(seen.backlog_s > 0)


def _peaks(rules: Rules, memory: Memory, at: float, demand: float) -> tuple[tuple[int, float], ...]:
    bucket = int(at // BUCKET_S)
    oldest = bucket - rules.remember_s / BUCKET_S
    kept = {number: peak for number, peak in memory.peaks if number >= oldest}
    kept[bucket] = max(kept.get(bucket, 0.0), demand)
    return tuple(sorted(kept.items()))


def _wanted(rules: Rules, memory: Memory, seen: Seen) -> tuple[int, str]:
    """Before the limits."""
    if not seen.replicas:
        return (1, f"{seen.waiting} wait and nobody is there: 0 -> 1") if seen.waiting else (0, "nothing waits")
    late = seen.backlog_s > rules.backlog_s
    need = memory.demand + (memory.work / rules.drain_s if late and rules.drain_s else 0.0)
    up = ceil(need / rules.up_busy - ROUNDING)
    if up > seen.replicas and (late or seen.busy >= rules.up_busy or seen.computing >= rules.up_busy):
        return up, _why(memory, seen, rules, up)
    return _fewer(rules, memory, seen, late=late)


def _fewer(rules: Rules, memory: Memory, seen: Seen, *, late: bool) -> tuple[int, str]:
    """Down to what the highest demand of the last `remember_s` needs, and to zero after `idle_s` of nothing."""
    stay = seen.replicas
    if seen.backlog_s < 0:
        return stay, "nobody can tell how long it would wait: stays"
    if late:
        return stay, f"{seen.backlog_s:.1f} s of work wait, for which {stay} are enough"
    last_up = max(memory.up_at, memory.since)
    if seen.at - last_up < rules.cooldown_s:
        return stay, f"{seen.at - last_up:.0f} s since the last one came, {rules.cooldown_s:g} s are waited: stays"
    idle_s = seen.at - memory.active_at
    if not rules.least and idle_s >= rules.idle_s:
        return 0, f"nothing to do for {idle_s:.0f} s: {stay} -> 0"
    peak = max(value for _, value in memory.peaks) if memory.peaks else memory.demand
    down = max(ceil(peak / rules.down_busy - ROUNDING), 1)
    if down < stay:
        return down, f"no more than {peak:.1f} were busy for {rules.remember_s:g} s: {stay} -> {down}"
    return stay, f"{memory.demand:.1f} of {stay} busy, at most {peak:.1f} lately: stays"


def _why(memory: Memory, seen: Seen, rules: Rules, up: int) -> str:
    if seen.backlog_s > rules.backlog_s:
        waits = f"{seen.backlog_s:.1f} s of work wait, more than {rules.backlog_s:g} s"
    else:
        waits = f"{memory.demand:.1f} busy all the time, more than {rules.up_busy:.0%} of {seen.replicas}"
    return f"{waits}: {seen.replicas} -> {up}"
