"""The written report: its sections, in Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from load.reporting import arms, tables
from load.reporting.conditions import mixed, several
from load.reporting.cost import Prices
from load.reporting.processes import Kind, kinds
from load.reporting.results import Case, Results, Run, described
from load.reporting.spread import number
from load.reporting.targets import TARGETS
from load.reporting.verdicts import judge_all, tally

PER_TOKEN = ("W3", "W1-C256", "W1-C64", "W1-C16")
"""Workloads whose CPU time by process is shown: the first that was measured."""


@dataclass(frozen=True)
class Options:
    """What a report is told beside the results: prices, and speeds of GPUs (output tokens a second) to plan for."""

    prices: Prices = field(default_factory=Prices)
    speeds: Sequence[float] = (5_000, 20_000)


def document(results: Results, options: Options, plots: Sequence[str]) -> str:
    """All sections; `plots` are lines of Markdown that show or name the plots."""
    sections = [
        ("Machine and commands", list(_origin(results))),
        ("Targets", _targets(results)),
        ("Where the difference to the monolith comes from", _difference(results)),
        *((f"{case.workload} (profile `{case.profile}`)", _case(results, case, options)) for case in results.cases),
        ("Memory of waiting requests", _waiting(results)),
        ("Runs that gave no figures", _failures(results)),
        ("Plots", list(plots)),
        *_processes(results, options),
    ]
    return "\n\n".join("\n\n".join([f"### {title}", *parts]) for title, parts in sections if parts) + "\n"


def _origin(results: Results) -> Iterator[str]:
    """Where the figures come from, and how to get them again."""
    runs = results.all()
    for machine in _distinct([run.machine for run in runs]):
        yield f"Machine: {machine}."
    ran = {run.arm for run in runs}
    for versions in _distinct([arms.taking_part(run.versions, ran) for run in runs]):
        yield f"Versions: {versions}."
    yield from several(results)
    times = sorted(_time(run.at) for run in runs if run.at)
    yield f"{len(runs)} runs" + (f", from {times[0]} to {times[-1]}." if times else ".")
    commands = dict.fromkeys(run.command if isinstance(run.command, str) else " ".join(run.command) for run in runs)
    known = [command for command in commands if command]
    if known:
        yield "\n".join(["```sh", *known, "```"])


def _time(at: str | float) -> str:
    """Unix seconds for people."""
    return at if isinstance(at, str) else datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="minutes")


def _distinct(facts: Sequence[Mapping[str, object]]) -> list[str]:
    return [text for text in dict.fromkeys(described(fact) for fact in facts) if text]


def _targets(results: Results) -> list[str]:
    """Those of workloads that nobody ran are counted, and not shown."""
    verdicts = judge_all(results, TARGETS)
    shown = [verdict for verdict in verdicts if results.arms(verdict.target.case)]
    absent = dict.fromkeys(verdict.target.case.workload for verdict in verdicts if verdict not in shown)
    left_out = f"{len(verdicts) - len(shown)} targets of workloads that were not measured: {', '.join(absent)}."
    return [
        f"{tally(shown)}.",
        *([tables.target_table(shown)] if shown else []),
        *([left_out] if absent else []),
    ]


def _difference(results: Results) -> list[str]:
    cases = [case for case in _closed(results) if {arms.NATS, arms.MONOLITH} <= set(results.arms(case))]
    return [tables.difference_table(results, cases)] if cases else []


def _closed(results: Results) -> list[Case]:
    """Where an arm decides how much it serves: in an open loop, or with one request at once, all serve alike."""
    return [case for case in results.cases if any((run.concurrency or 0) > 1 for run in _any_arm(results, case))]


def _any_arm(results: Results, case: Case) -> list[Run]:
    return [run for arm in results.arms(case) for run in results.runs(case, arm).values()]


def _case(results: Results, case: Case, options: Options) -> list[str]:
    faults = [f"- {fault}" for fault in tables.faults(results, case)]
    told = ["Not everything went well:\n\n" + "\n".join(faults)] if faults else []
    return [
        *mixed(results, case),
        tables.claim_table(results, case, options.prices),
        tables.latency_table(results, case),
        *told,
    ]


def _waiting(results: Results) -> list[str]:
    runs = [run for run in results.all() if run.waiting_kb]
    return [tables.waiting_table(runs)] if runs else []


def _failures(results: Results) -> list[str]:
    told = [f"- {one.arm} at {one.workload}, repeat {one.repeat}: {one.failed}" for one in results.failures]
    return ["\n".join(told)] if told else []


def _processes(results: Results, options: Options) -> Iterator[tuple[str, list[str]]]:
    """CPU time by process at the workload where a token costs most, and what follows for larger machines."""
    case = next((case for name in PER_TOKEN for case in results.cases if case.workload == name), None)
    if not case:
        return
    found = {arm: kinds(results, case, arm) for arm in results.arms(case)}
    if any(found.values()):
        yield f"CPU by process, {case.workload}", [tables.process_table(list(found.items()))]
    for arm in (arms.NATS, arms.HTTP):
        if found.get(arm):
            yield f"A machine with more cores: {arm}, from {case.workload}", _capacity(found[arm], options)


def _capacity(found: Sequence[Kind], options: Options) -> list[str]:
    gpus = " and ".join(number(speed) for speed in options.speeds)
    said = (
        f"Cores and processes for one GPU that gives {gpus} output tokens a second, at this mix of prompts and answers."
    )
    return [said, tables.capacity_table(found, options.speeds)]
