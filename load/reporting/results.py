"""The runs that `load.compare` appended to its files: one JSON line an arm, a workload and a repeat."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from load.reporting import arms

WAITING = "waiting"
"""The workload of runs that fill queues and wait."""


MOST = 10**12
"""More than anything that is measured here: beyond, a file was not written by a measurement."""

Amount = Annotated[float, Meta(ge=0, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
Unix = Annotated[float, Meta(ge=0, le=1e11)]
"""Seconds; of a year that calendars have."""

Digits = Annotated[str, Meta(pattern=r"^\d{1,12}$")]


class Window(msgspec.Struct, frozen=True):
    """The part of a run that counts: unix seconds, and seconds."""

    begin: Amount
    end: Amount
    s: Amount


class Percentiles(msgspec.Struct, frozen=True):
    """Milliseconds; None where there was nothing to measure."""

    p50: Amount | None = None
    p90: Amount | None = None
    p99: Amount | None = None
    max: Amount | None = None
    mean: Amount | None = None


class Gpu(msgspec.Struct, frozen=True):
    """One GPU in the window: share of time busy, steps a second, decoding requests and prompt tokens a step."""

    busy: Amount
    steps_s: Amount
    decode_per_step: Amount
    prefill_per_step: Amount


class Goodput(msgspec.Struct, frozen=True):
    """The share of requests within both limits (milliseconds), and such requests a second."""

    ttft_ms: Amount
    itl_ms: Amount
    share: Amount
    requests_s: Amount


class Process(msgspec.Struct, frozen=True):
    """CPU seconds in the window and peak memory (MiB) of one process; role `engine`, `server`, `broker` or `client`."""

    name: str
    role: str
    cpu_s: Amount
    peak_mb: Amount | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One arm, one workload, one repeat. Fields that are not needed here are ignored.

    `duration`, `warm_up` (seconds) and `engine_options` are those of the command line; earlier versions wrote none.
    `waiting_kb`, of runs that fill queues on purpose (`load.waiting`), by the bytes of a prompt: memory of all
    processes for each of `waiting` requests, beyond three times these bytes.
    """

    format: Literal[1]
    arm: str
    workload: str
    profile: str
    repeat: Count
    at: str | Unix = ""
    machine: dict[str, str | int | float] = msgspec.field(default_factory=dict[str, str | int | float])
    versions: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    command: str | list[str] = ""
    model: str = ""
    trace: str = ""
    engine_options: dict[str, Any] | None = None
    warm_up: Amount | None = None
    duration: Amount | None = None
    loop: str
    concurrency: Count | None = None
    rate: Amount | None = None
    window: Window
    requests: Count
    requests_s: Amount
    output_tokens_s: Amount
    ttft_ms: Percentiles | None = None
    itl_ms: Percentiles | None = None
    e2e_ms: Percentiles | None = None
    events_per_token: Amount | None = None
    errors: dict[str, Count] = msgspec.field(default_factory=dict[str, Count])
    rejected: Count = 0
    wrong_text: Count | None = None
    unfinished: Count = 0
    kept_rate: bool | None = None
    goodput: Goodput | None = None
    gpu: list[Gpu] = msgspec.field(default_factory=list[Gpu])
    quantiles: dict[str, list[Amount]] = msgspec.field(default_factory=dict[str, list[Amount]])
    processes: list[Process] = msgspec.field(default_factory=list[Process])
    client_cpu_s: Amount | None = None
    waiting: Count = 0
    waiting_kb: dict[Digits, float] = msgspec.field(default_factory=dict[Digits, float])

    def __post_init__(self) -> None:
        cores = self.machine.get("cores", 1)
        if isinstance(cores, str) or cores <= 0:
            raise ValueError(f"cores of the machine: {cores!r} is no number above 0")

    @property
    def duration_s(self) -> float:
        """Of the window, as it was asked for: measured ones differ by milliseconds."""
        return self.duration or round(self.window.s) or self.window.s


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
    """Runs of different arms in one repeat were interleaved: they met the same state of the machine.

    What was measured elsewhere, or for another time (`window_s`, seconds), is no part of it, whatever its number.
    """

    source: str
    number: int
    machine: str
    window_s: float


def read(path: Path) -> Iterator[tuple[str, Run | Failure]]:
    """The runs of a file, with its name; see `lines`."""
    return ((str(path), run) for _, run in lines(path))


def lines(path: Path) -> Iterator[tuple[dict[str, Any], Run | Failure]]:
    """The lines of a file, as they stand and checked. A last one without its end is still being written and left out.

    Raises `ValueError`, which names file and line, for one that is no such run.
    """
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            return
        if line.strip():
            try:
                found: Any = msgspec.json.decode(line)
                yield found, _checked(found)
            except msgspec.MsgspecError as wrong:
                raise ValueError(f"{path}, line {number}: {wrong}") from wrong


def _checked(line: Any) -> Run | Failure:
    """What failed on the way may have figures all the same: then they count, with what was wrong."""
    without_figures = isinstance(line, dict) and "failed" in line and "window" not in line
    return msgspec.convert(line, Failure if without_figures else Run)


class _Try(NamedTuple):
    """What later lines of a file replace."""

    case: Case
    arm: str
    source: str
    repeat: int


def described(facts: Mapping[str, object]) -> str:
    """Facts in a line: `cores 2, memory_gib 8`."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


class Results:
    """Runs by case and arm. A line replaces an earlier one of its file for the same case, arm and repeat."""

    def __init__(self, lines: Iterable[tuple[str, Run | Failure]]) -> None:
        runs: dict[_Try, Run] = {}
        failures: dict[_Try, Failure] = {}
        for source, line in lines:
            key = _Try(Case(line.workload, line.profile), line.arm, source, line.repeat)
            if isinstance(line, Failure):
                failures[key] = line
            else:
                runs[key] = line
        self.failures: Sequence[Failure] = [failure for key, failure in failures.items() if key not in runs]
        """Runs of which there are no figures from any try."""
        self._runs: dict[Case, dict[str, dict[Repeat, Run]]] = {}
        for key, run in runs.items():
            repeat = Repeat(key.source, key.repeat, described(run.machine), run.duration_s)
            self._runs.setdefault(key.case, {}).setdefault(key.arm, {})[repeat] = run

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
