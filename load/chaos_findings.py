"""What a chaos run found, and what of it is said: one line of JSON."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from load.chaos_check import StoredFlaws
from load.chaos_faults import Fault
from load.chaos_http_requests import make_http_case
from load.chaos_load import Asked
from load.chaos_requests import Case, make_case
from load.percentiles import percentile

SHOWN_PROBLEMS = 20


def case_of(seed: int, asked: Asked) -> Case:
    """What was asked, with its truth: made anew, since thousands of them would take their space."""
    return make_http_case(seed, asked.number).case if asked.over_http else make_case(seed, asked.number)


@dataclass(frozen=True)
class Disturbance:
    """One fault as its readers saw it: the silences of the streams that it concerned, and of the others.

    `back_s`: from the fault until throughput was back to stay; `low_s`: all the seconds that it was low.
    `still_missing`: what did not come back.
    """

    fault: Fault
    concerned: list[float]
    others: list[float]
    back_s: float
    low_s: float
    still_missing: str


@dataclass
class Findings:
    """Everything that a run found out."""

    disturbances: list[Disturbance] = field(default_factory=list[Disturbance])
    calm: list[float] = field(default_factory=list[float])
    done: list[Fault] = field(default_factory=list[Fault])
    asked: list[Asked] = field(default_factory=list[Asked])
    refusals: dict[str, int] = field(default_factory=dict[str, int])
    broken: dict[str, int] = field(default_factory=dict[str, int])
    stored: dict[str, StoredFlaws] = field(default_factory=dict[str, StoredFlaws])
    unread: int = 0
    tokens: int = 0
    seconds: float = 0.0
    lag_s: float = 0.0
    drained: bool = True
    starts: dict[str, int] = field(default_factory=dict[str, int])
    peak_mib: dict[str, float] = field(default_factory=dict[str, float])
    growth_mib: dict[str, float] = field(default_factory=dict[str, float])
    errors: dict[str, int] = field(default_factory=dict[str, int])


def report(findings: Findings, seed: int, asked: int, *, storm: bool) -> dict[str, Any]:
    """All of it in plain values; `ok` is what the exit status says. Of the `asked` faults time allowed `done`."""
    counted = _requests(findings, seed)
    flaws, stored = _flaws(findings), _stored(findings)
    unrecovered = [f"{each.fault.name}: {each.still_missing}" for each in findings.disturbances if each.still_missing]
    bad = [counted["lost"], *flaws.values(), stored["duplicate_terminals"], stored["without_terminal"]]
    bad += [stored["pieces_wrong"], stored["tokens_missing"], stored["unread"], not findings.drained]
    bad += [not findings.done]  # a run in which nothing happened proves nothing
    if not storm:
        bad += [sum(counted["failed"].values()), len(unrecovered)]
    return {
        "ok": not any(bad),
        "seed": seed,
        "storm": storm,
        "seconds": round(findings.seconds, 1),
        "tokens": findings.tokens,
        "asked": asked,
        "done": len(findings.done),
        "faults": _faults(findings.done),
        "requests": counted,
        **flaws,
        "stored": stored,
        "stall_s": _by_fault(findings, lambda each: each.concerned),
        "stall_of_others_s": spread([silence for each in findings.disturbances for silence in each.others]),
        "undisturbed_s": spread(findings.calm),
        "measured_late_s": round(findings.lag_s, 3),
        "throughput_back_s": _by_fault(findings, lambda each: [each.back_s]),
        "throughput_low_s": round(sum(each.low_s for each in findings.disturbances), 1),
        "unrecovered": unrecovered,
        "drained": findings.drained,
        "peak_rss_mib": findings.peak_mib,
        "rss_growth_mib": findings.growth_mib,
        "starts": findings.starts,
        "errors_logged": findings.errors,
        "problems": list(_problems(findings, seed))[:SHOWN_PROBLEMS],
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """How many, p50, p99 and the most."""
    if not values:
        return {"count": 0}
    found = {"p50": percentile(values, 50), "p99": percentile(values, 99), "max": max(values)}
    return {"count": len(values), **{name: round(value, 2) for name, value in found.items()}}


def _requests(findings: Findings, seed: int) -> dict[str, Any]:
    """What became of the requests; faults that were asked for (cancels, short deadlines) apart from others."""
    accepted = [each for each in findings.asked if each.accepted]
    lost = [each for each in accepted if not each.ended or each.fault == "lost"]
    faulted = [each for each in accepted if each.ended and each.fault not in ("", "lost")]
    wanted = [each for each in faulted if each.fault in case_of(seed, each).may_fail]
    return {
        "accepted": len(accepted),
        "ended": len(accepted) - len(lost),
        "lost": len(lost),
        "failed": dict(Counter(each.fault for each in faulted if each not in wanted)),
        "ended_as_asked": dict(Counter(each.fault for each in wanted)),
        "refused_at_first": findings.refusals,
        "over_http": sum(each.over_http for each in accepted),
        "streams_broken": findings.broken,
    }


def _flaws(findings: Findings) -> dict[str, int]:
    return {
        "wrong": sum(each.flaws.wrong for each in findings.asked),
        "missing": sum(each.flaws.missing for each in findings.asked),
        "doubled": sum(each.flaws.doubled for each in findings.asked),
    }


def _stored(findings: Findings) -> dict[str, int]:
    found = findings.stored.values()
    return {
        "read": len(found),
        "unread": findings.unread,
        "duplicate_terminals": sum(each.duplicates for each in found),
        "repeated_terminals": sum(each.repeats for each in found),
        "without_terminal": sum(each.endless for each in found),
        "pieces_after_terminal": sum(each.after_end for each in found),
        "pieces_wrong": sum(each.wrong for each in found),
        "tokens_missing": sum(each.missing for each in found),
    }


def _faults(done: Iterable[Fault]) -> dict[str, dict[str, int]]:
    """How many, by target and signal."""
    found: dict[str, dict[str, int]] = {}
    for fault in done:
        by_signal = found.setdefault(fault.target, {})
        by_signal[fault.signal] = by_signal.get(fault.signal, 0) + 1
    return found


def _by_fault(findings: Findings, values: Callable[[Disturbance], list[float]]) -> dict[str, dict[str, float]]:
    """Their spread, by target and signal (`inference KILL`)."""
    found: dict[str, list[float]] = {}
    for each in findings.disturbances:
        found.setdefault(f"{each.fault.target} {each.fault.signal}", []).extend(values(each))
    return {name: spread(found[name]) for name in sorted(found)}


def _problems(findings: Findings, seed: int) -> Iterable[str]:
    for each in findings.asked:
        said = [*each.flaws.said, *(findings.stored.get(each.id) or StoredFlaws()).said]
        if each.accepted and (said or (each.fault and each.fault not in case_of(seed, each).may_fail)):
            yield f"{each.id} ({each.kind}{f', {each.fault}' if each.fault else ''}): {'; '.join(said) or 'no answer'}"
        elif each.accepted and not each.ended:
            yield f"{each.id} ({each.kind}): has not ended"
