"""One run: `load.generate` against a started arm, while what all processes use is watched."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from load.comparison.arms.arm import Endpoint
from load.comparison.process import NotStarted, Started
from load.comparison.results import Result
from load.comparison.setup import Setup
from load.comparison.usage import Sampler
from load.comparison.workloads import Workload
from load.workload.traces import TraceRow

SLACK_S = 120.0
"""Beyond warm-up and window: prompts are made, answers let go, logs waited for; an engine core starts, maybe."""


@dataclass(frozen=True)
class Timing:
    """Seconds."""

    warm_up: float
    duration: float

    @property
    def run_s(self) -> float:
        return self.warm_up + self.duration


@dataclass(frozen=True)
class Trace:
    """Real requests; those of W4 go out at `rate` a second on average, 0 where no workload needs it."""

    path: Path
    rows: Sequence[TraceRow]
    rate: float = 0.0

    def speed(self, seconds: float) -> float:
        """How many times as fast the part that is played within `seconds` has to go, from the trace's start on."""
        last, count = self.rows[-1].at, len(self.rows)
        rounds, rest = divmod(round(self.rate * seconds), count)
        # Where the trace ends it begins again, a mean gap later.
        played_s = rounds * (last + (last / max(count - 1, 1) or 1.0)) + self.rows[rest].at
        return max(played_s / seconds, 1e-6)


def drive(endpoint: Endpoint, roots: Sequence[int], setup: Setup, command: Sequence[str], run_s: float) -> Result:
    """The figures of `load.generate`, and `processes`. Raises `NotStarted` where it ends without figures."""
    generate = Started("generate", command, endpoint.environ or os.environ, setup.folder)
    try:
        with Sampler(lambda: [*roots, generate.pid]) as sampler:
            status = generate.finish(run_s + SLACK_S)
        if status:
            raise NotStarted(f"generate ended with status {status}:\n{generate.said}")
        figures: dict[str, Any] = json.loads(generate.out)
    finally:
        generate.stop()
    window = figures["window"]
    used = sampler.used(window["begin"], window["end"])
    return {**figures, "model": setup.name, "processes": [asdict(process) for process in used]}


def generate_command(
    endpoint: Endpoint, workload: Workload, setup: Setup, timing: Timing, *, seed: int, trace: Trace | None
) -> list[str]:
    """The command line of `load.generate`. Where the GPU is simulated every answer's text is checked."""
    command = [sys.executable, "-m", "load.generate", "--target", endpoint.target, "--model", endpoint.model]
    command += [*(["--url", endpoint.url] if endpoint.url else []), *workload.arguments, *endpoint.arguments]
    command += ["--warm-up", f"{timing.warm_up:g}", "--duration", f"{timing.duration:g}", "--seed", str(seed), "--json"]
    command += ["--tokenizer", str(setup.tokenizer_file())]
    if workload.needs_trace and trace is not None:
        command += ["--trace", str(trace.path)]
    if workload.needs_rate and trace is not None:
        command += ["--trace-speed", f"{trace.speed(timing.run_s):.6g}"]
    if setup.simulated:
        command += ["--check-text", *(text for log in endpoint.gpu_logs for text in ("--gpu-log", str(log)))]
    return command


def fault(result: Mapping[str, Any]) -> str:
    """What was wrong with a run that has figures; "" for a sound one."""
    errors: dict[str, int] = result.get("errors") or {}
    found = [f"{count} x {code}" for code, count in errors.items() if count]
    for field, words in (("wrong_text", "wrong texts"), ("unfinished", "answers without an end")):
        if count := result.get(field):
            found.append(f"{count} {words}")
    if not result.get("requests"):
        found.append("no request ended in the window")
    return ", ".join(found)


def now() -> str:
    """UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
