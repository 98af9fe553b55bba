"""The whole comparison: job after job, each result in the file as soon as it is there, whatever fails on the way."""

import contextlib
import os
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from load.comparison.arms import ARMS
from load.comparison.arms.arm import Arm, Endpoint
from load.comparison.driving import Timing, Trace, drive, fault, generate_command, now
from load.comparison.machine import machine, versions
from load.comparison.plan import Job
from load.comparison.process import NotStarted
from load.comparison.results import Result, ResultsFile
from load.comparison.setup import Setup
from load.comparison.workloads import Workload


@dataclass(frozen=True)
class Model:
    """Checkpoint folder (or a hub's name), the name under which it is served, further options of vLLM."""

    path: str
    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Running:
    """An arm that answers."""

    arm: Arm
    endpoint: Endpoint
    setup: Setup


class Comparison:
    """Runs jobs. What its processes write is kept in `logs`, if there is one."""

    def __init__(
        self, results: ResultsFile, model: Model, timing: Timing, command: str, *, console: Console, logs: Path | None
    ) -> None:
        self._results = results
        self._model = model
        self._timing = timing
        self._console = console
        self._logs = logs
        settings = {"warm_up": timing.warm_up, "duration": timing.duration, "engine_options": dict(model.options)}
        self._origin: Result = {"machine": machine(), "versions": versions(), "command": command, **settings}

    def run(self, job: Job, trace: Trace | None = None) -> None:
        """Starts the arm, runs its workloads, stops it. `trace` is for those that need one."""
        left = list(job.workloads)
        try:
            with self._started(job) as running:
                while left:
                    self._run_one(job, left.pop(0), running, trace)
        except NotStarted as error:
            for workload in left:
                self._record(job, workload, self._failed(error))

    @contextlib.contextmanager
    def _started(self, job: Job) -> Generator[Running]:
        self._console.print(f"[bold]{job.arm}[/] starts (repeat {job.repeat}, {job.profile})")
        arm = ARMS[job.arm]()
        with self._folder(job) as folder:
            model = self._model
            setup = Setup(model.path, model.name, job.profile, job.gpus, folder, {**job.options, **model.options})
            try:
                yield Running(arm, arm.start(setup), setup)
            finally:
                arm.stop()

    @contextlib.contextmanager
    def _folder(self, job: Job) -> Generator[Path]:
        """Where everything that is started for the job writes."""
        if self._logs is None:
            with tempfile.TemporaryDirectory(prefix="headrace-compare-", ignore_cleanup_errors=True) as folder:
                yield Path(folder)
            return
        profile = job.profile.replace("/", "-")
        folder = Path(tempfile.mkdtemp(prefix=f"{job.arm}-{job.repeat}-{profile}-", dir=self._logs))
        yield folder

    def _run_one(self, job: Job, workload: Workload, running: Running, trace: Trace | None) -> None:
        load_before = round(os.getloadavg()[0], 2)
        endpoint, setup, timing = running.endpoint, running.setup, self._timing
        try:
            command = generate_command(endpoint, workload, setup, timing, seed=job.repeat, trace=trace)
            figures = drive(endpoint, running.arm.roots, setup, command, timing.run_s)
        except NotStarted as error:
            figures = self._failed(error)
        else:
            figures |= {"failed": wrong} if (wrong := fault(figures)) else {}
            figures |= {"trace": trace.path.name} if trace and workload.needs_trace else {}
            figures |= {"rate": round(trace.rate, 3)} if trace and workload.needs_rate else {}
        self._record(job, workload, {**figures, "load_before": load_before})

    def _failed(self, error: NotStarted) -> Result:
        """For the file the first line, which is ours; what a process said is for this terminal: it names paths."""
        self._console.print(str(error), style="red", markup=False, highlight=False)
        return {"failed": str(error).partition("\n")[0].rstrip(":")}

    def _record(self, job: Job, workload: Workload, figures: Result) -> None:
        self._results.append({**asdict(job.key(workload)), "at": now(), **self._origin, **figures})
        self._console.print(f"  {workload.name}: {brief(figures)}", highlight=False, soft_wrap=True)


def brief(figures: Result) -> str:
    """One run in a line."""
    parts = [f"[red]{figures['failed']}[/]"] if "failed" in figures else []
    if "requests_s" in figures:
        parts.append(f"{figures['requests_s']:.1f} requests/s")
        gpus: list[dict[str, float]] = figures.get("gpu") or []
        parts += [f"GPU busy {gpu['busy']:.2f}" for gpu in gpus]
    for name, field, shares in (("ITL", "itl_ms", ("p50",)), ("TTFT", "ttft_ms", ("p50", "p99"))):
        measured: dict[str, float | None] = figures.get(field) or {}
        words = [f"{share} {measured[share]:.1f}" for share in shares if measured.get(share) is not None]
        parts += [f"{name} {' '.join(words)} ms"] if words else []
    return ", ".join(parts)
