"""The runs that `load.compare` appended to its files: one JSON line an arm, a workload and a repeat."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from load.reporting import arms

WAITING = "waiting"
"""The workload of runs that fill queues and wait."""


class Window(msgspec.Struct, frozen=True):
    """The part of a run that counts: unix seconds, and seconds."""

    begin: float
    end: float
    s: float


class Percentiles(msgspec.Struct, frozen=True):
    """Milliseconds; None where there was nothing to measure."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None
    mean: float | None = None


class Gpu(msgspec.Struct, frozen=True):
    """One GPU in the window: share of time busy, steps a second, decoding requests and prompt tokens a step."""

    busy: float
    steps_s: float
    decode_per_step: float
    prefill_per_step: float


class Goodput(msgspec.Struct, frozen=True):
    """The share of requests within both limits (milliseconds), and such requests a second."""

    ttft_ms: float
    itl_ms: float
    share: float
    requests_s: float


class Process(msgspec.Struct, frozen=True):
    """CPU seconds within the window and peak memory of one process; role `engine`, `server`, `broker` or `client`."""

    name: str
    role: str
    cpu_s: float
    peak_mb: float | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One arm, one workload, one repeat. Fields that are not needed here are ignored.

    `waiting_kb`, of runs that fill queues on purpose (`load.waiting`), by the bytes of a prompt: memory of all
    processes for a waiting request, beyond three times these bytes.
    """

    format: Literal[1]
    arm: str
    workload: str
    profile: str
    repeat: int
    at: str | float = ""
    machine: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    versions: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    command: str | list[str] = ""
    loop: str
    concurrency: int | None = None
    rate: float | None = None
    window: Window
    requests: int
    requests_s: float
    output_tokens_s: float
    ttft_ms: Percentiles | None = None
    itl_ms: Percentiles | None = None
    e2e_ms: Percentiles | None = None
    events_per_token: float | None = None
    errors: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    rejected: int = 0
    wrong_text: int | None = None
    unfinished: int = 0
    kept_rate: bool | None = None
    goodput: Goodput | None = None
    gpu: list[Gpu] = msgspec.field(default_factory=list[Gpu])
    quantiles: dict[str, list[float]] = msgspec.field(default_factory=dict[str, list[float]])
    processes: list[Process] = msgspec.field(default_factory=list[Process])
    client_cpu_s: float | None = None
    waiting_kb: dict[str, float] = msgspec.field(default_factory=dict[str, float])


class Failure(msgspec.Struct, frozen=True):
    """A run that gave no figures, and why."""

    format: Literal[1]
    arm: str
    workload: str
    profile: str
    repeat: int
    failed: str


class Case(NamedTuple):
    """What arms are compared on."""

    workload: str
    profile: str


class Repeat(NamedTuple):
    """Runs of different arms in one repeat were interleaved: they met the same state of the machine."""

    source: str
    number: int


def read(path: Path) -> Iterator[tuple[str, Run | Failure]]:
    """The lines of a file, with its name. A last one without its end is still being written and left out.

    Raises `ValueError`, which names the line, for one that is no such run.
    """
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            return
        if line.strip():
            try:
                yield str(path), _line(msgspec.json.decode(line))
            except msgspec.MsgspecError as wrong:
                raise ValueError(f"{path}, line {number}: {wrong}") from wrong


def _line(line: Any) -> Run | Failure:
    """What failed on the way may have figures all the same: then they count, with what was wrong."""
    without_figures = isinstance(line, dict) and "failed" in line and "window" not in line
    return msgspec.convert(line, Failure if without_figures else Run)


class Results:
    """Runs by case and arm. A line replaces an earlier one of its file for the same case, arm and repeat."""

    def __init__(self, lines: Iterable[tuple[str, Run | Failure]]) -> None:
        self._runs: dict[Case, dict[str, dict[Repeat, Run]]] = {}
        self._failures: dict[tuple[Case, str, Repeat], Failure] = {}
        for source, line in lines:
            case, repeat = Case(line.workload, line.profile), Repeat(source, line.repeat)
            if isinstance(line, Failure):
                self._failures[case, line.arm, repeat] = line
            else:
                self._runs.setdefault(case, {}).setdefault(line.arm, {})[repeat] = line

    @property
    def failures(self) -> list[Failure]:
        """Runs of which there are no figures from any try."""
        tries = self._failures.items()
        return [failure for (case, arm, repeat), failure in tries if repeat not in self.runs(case, arm)]

    @property
    def cases(self) -> list[Case]:
        """In the order of the lines; without `WAITING`, where nothing is served: it has no throughput to compare."""
        return [case for case in self._runs if case.workload != WAITING]

    def arms(self, case: Case) -> list[str]:
        """The arms that ran it, in the order in which arms are always shown."""
        return sorted(self._runs.get(case, {}), key=arms.rank)

    def runs(self, case: Case, arm: str) -> Mapping[Repeat, Run]:
        """Empty where nothing was measured."""
        return self._runs.get(case, {}).get(arm, {})

    def all(self) -> Sequence[Run]:
        """Every run that counts."""
        return [run for by_arm in self._runs.values() for runs in by_arm.values() for run in runs.values()]
