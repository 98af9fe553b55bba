"""CPU time by kind of process: what each stage, server or broker takes for 1,000 output tokens."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from load.reporting.metrics import SERVING, per_thousand_tokens
from load.reporting.results import Case, Process, Repeat, Results, Run
from load.reporting.spread import Spread

_NUMBERED = re.compile(r"[-_ ]?\d+$")
_ROLES = ("engine", "broker", "server")
_STAGES = ("edge", "preprocess", "schedule", "inference-front", "postprocess")


@dataclass(frozen=True)
class Kind:
    """All replicas of one kind together: CPU milliseconds for 1,000 output tokens, the sum of their peaks in MiB."""

    name: str
    role: str
    cpu_ms: Spread
    peak_mb: Spread | None


def kinds(results: Results, case: Case, arm: str) -> list[Kind]:
    """What serves: engine core, broker, stages in the order of the pipeline, others. Empty if nothing was watched."""
    runs = results.runs(case, arm)
    names = {(p.role, kind(p.name)) for run in runs.values() for p in run.processes if p.role in SERVING}
    found = (_kind(runs, role, name) for role, name in sorted(names, key=_place))
    return [one for one in found if one]


def _place(process: tuple[str, str]) -> tuple[int, int, str]:
    role, name = process
    return _ROLES.index(role), _STAGES.index(name) if name in _STAGES else len(_STAGES), name


def kind(name: str) -> str:
    """`postprocess-1` is a postprocess."""
    return _NUMBERED.sub("", name) or name


def _kind(runs: Mapping[Repeat, Run], role: str, name: str) -> Kind | None:
    cpu_ms = Spread.of(per_thousand_tokens(run, sum(p.cpu_s for p in _of(run, role, name))) for run in runs.values())
    peaks = [[p.peak_mb for p in _of(run, role, name)] for run in runs.values()]
    known = Spread.of(sum(peak for peak in run if peak) for run in peaks if any(run))
    return Kind(name, role, cpu_ms, known) if cpu_ms else None


def _of(run: Run, role: str, name: str) -> list[Process]:
    return [process for process in run.processes if process.role == role and kind(process.name) == name]
