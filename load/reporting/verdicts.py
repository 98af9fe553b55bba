"""Targets judged: met, missed, or not measured, with the figures."""

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from load.reporting import arms
from load.reporting.metrics import Metric, lost
from load.reporting.results import Case, Repeat, Results, Run
from load.reporting.rules import Rule
from load.reporting.spread import Spread
from load.reporting.targets import Single, Target, singly

GROUPS = {"best peer": arms.PEERS, "best smg": arms.SMG}
ITSELF = "itself at "


class State(StrEnum):
    """What became of a target."""

    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Verdict:
    """`kept` of `repeats` repeats satisfy the rule; the state is that of the median repeat.

    `measured` and `reached` are the figure and how it stands to the reference; `against` names that with its figure.
    `lost` requests of these repeats did not end in the right answer: a figure that was reached without them.
    """

    target: Single
    state: State
    measured: str = ""
    reached: str = ""
    against: str = ""
    kept: int = 0
    repeats: int = 0
    lost: int = 0


@dataclass(frozen=True)
class _Reference:
    name: str
    values: Mapping[Repeat, float]
    among: str = ""


def judge_all(results: Results, targets: tuple[Target, ...]) -> list[Verdict]:
    """Every target for each of its workloads and arms, in their order."""
    return [judge(results, single) for single in singly(targets)]


def judge(results: Results, target: Single) -> Verdict:
    """One target. It is not measured where no repeat has both figures: repeats are compared with each other only."""
    rule = Rule.parse(target.rule)
    runs = results.runs(target.case, target.arm)
    ours = target.metric.by_repeat(runs)
    reference = _reference(results, target, rule)
    there = reference.values if rule.reference else dict.fromkeys(ours, 0.0)
    pairs = {repeat: (value, there[repeat]) for repeat, value in ours.items() if repeat in there}
    if not pairs:
        return Verdict(target, State.NOT_MEASURED, against=_absent(runs.values(), ours, reference, target))
    margins = [rule.margin(*pair) for pair in pairs.values()]
    state = State.MET if rule.holds(statistics.median(margins)) else State.MISSED
    measured = _figure([value for value, _ in pairs.values()], target.metric)
    against = f"{_where(reference, target)}: {_figure([figure for _, figure in pairs.values()], target.metric)}"
    return Verdict(
        target,
        state,
        measured,
        _reached(rule, list(pairs.values()), target.metric.unit),
        against if rule.reference else "",
        sum(rule.holds(margin) for margin in margins),
        len(margins),
        sum(lost(runs[repeat]) for repeat in pairs),
    )


def _reference(results: Results, target: Single, rule: Rule) -> _Reference:
    """Who is meant by the rule, and what it reached in each repeat."""
    case, metric = target.case, target.metric
    if rule.reference.startswith(ITSELF):
        other = Case(rule.reference.removeprefix(ITSELF), case.profile)
        return _Reference(rule.reference, metric.by_repeat(results.runs(other, target.arm)))
    if rule.reference in GROUPS:
        return _best(results, case, metric, rule)
    return _Reference(rule.reference, metric.by_repeat(results.runs(case, rule.reference)))


def _best(results: Results, case: Case, metric: Metric, rule: Rule) -> _Reference:
    """The one of a group with the best median, and of how many: a best of one is no great opponent."""
    group = GROUPS[rule.reference]
    measured = {arm: metric.by_repeat(results.runs(case, arm)) for arm in group}
    medians = {arm: statistics.median(values.values()) for arm, values in measured.items() if values}
    if not medians:
        return _Reference(rule.reference, {})
    best = (max if rule.more_is_better else min)(medians, key=medians.__getitem__)
    among = "" if len(medians) == len(group) else f" (best of {len(medians)} of {len(group)})"
    return _Reference(best, measured[best], among)


def _figure(values: list[float], metric: Metric) -> str:
    spread = Spread.of(values)
    return spread.text(metric.unit) if spread else ""


def _reached(rule: Rule, pairs: list[tuple[float, float]], unit: str) -> str:
    """The quotient for rules with a factor, the difference for those with an addend."""
    if not rule.reference:
        return ""
    if rule.plus:
        difference = statistics.median(value - there for value, there in pairs)
        return f"{difference:+.2f} {unit}".rstrip()
    quotients = [value / there for value, there in pairs if there]
    return f"{statistics.median(quotients):.3f} x" if quotients else ""


def _where(reference: _Reference, target: Single) -> str:
    """The reference with its workload; `itself at …` names one already."""
    at = "" if reference.name.startswith(ITSELF) else f" at {target.case.workload}"
    return reference.name + at + reference.among


def _absent(runs: Collection[Run], ours: Mapping[Repeat, float], reference: _Reference, target: Single) -> str:
    if not runs:
        return f"no {target.arm} at {target.case.workload}"
    if not ours:
        return f"no {target.metric.needs or target.metric.name} in {target.arm} at {target.case.workload}"
    there = _where(reference, target)
    return f"no repeat in common with {there}, on one machine, in one window" if reference.values else f"no {there}"


def tally(verdicts: list[Verdict]) -> str:
    """`31 met, 4 missed, 2 not measured`."""
    return ", ".join(f"{sum(v.state is state for v in verdicts)} {state}" for state in State)
