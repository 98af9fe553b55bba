"""`python -m load.compare`: Headrace beside its peers, on the same workloads, in one run.

Repeats are interleaved: every arm is started once a repeat, sees its workloads and is stopped. Each run becomes a JSON
line of --results as it ends; a comparison that was stopped goes on where its file ends, and tries again what failed.
It refuses to go on (status 2) on another machine, with other versions or another window: --mix says that it may.

W4, a real trace at its own timestamps, goes out at 80 % of what the engine core alone can do with requests of the same
lengths. That is measured first (W4-limit: engine-only, 256 at once), taken from the file, or given as --limit.
"""

import argparse
import contextlib
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from rich.console import Console

from load.comparison.arms import ARMS, ENGINE_ONLY
from load.comparison.comparison import Comparison, Model
from load.comparison.conditions import Conditions, Settings, differences, told
from load.comparison.driving import Timing, Trace
from load.comparison.machine import allow_many_connections, machine, versions
from load.comparison.plan import Job, expected_s, jobs, limit_job
from load.comparison.results import ResultsFile
from load.comparison.setup import REAL
from load.comparison.table import failures, tables
from load.comparison.workloads import LIMIT, LIMIT_SHARE, WORKLOADS, Workload
from load.generator.option_values import engine_option, number, parsed
from load.gpu.profile import FORM, gpu_profile
from load.reporting.results import Case
from load.workload.traces import read_trace
from stages.inference.bundled_model import bundled_model_path
from stages.inference.model_card import model_name

DEFAULT_WORKLOADS = ["W1-C16", "W1-C64", "W1-C256", "W1-20s", "W2", "W3", "h100-W1-C64", "C1", "C1024"]


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where every run of the plan is sound now, 1 where some are not, 130 and 143 after Ctrl-C and SIGTERM."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    console, results = Console(stderr=True), ResultsFile(Path(chosen.results))
    with contextlib.ExitStack() as held:
        try:
            workloads = _workloads(chosen)
            trace = Trace(Path(chosen.trace), read_trace(Path(chosen.trace))) if chosen.trace else None
            if not chosen.dry_run:
                held.enter_context(results.locked())
            _check_conditions(chosen, workloads, results, console)
            planned = _plan(chosen, workloads, results)
        except (ValueError, OSError) as error:
            parser.error(str(error))
        _show_plan(planned, chosen, console)
        return 0 if chosen.dry_run else _run(planned, chosen, results, trace, console)


def _run(
    planned: Sequence[Job], chosen: argparse.Namespace, results: ResultsFile, trace: Trace | None, console: Console
) -> int:
    """The exit status. Whatever ends it, the tables of all that is there come last but for what is left to do."""
    signal.signal(signal.SIGTERM, _terminated)
    stopped = 0
    try:
        _compare(planned, chosen, results, trace, console)
    except KeyboardInterrupt:
        stopped = 128 + signal.SIGINT
    except SystemExit as ended:
        stopped = int(ended.code or 0)
    finally:
        show(results)
    done = results.done()
    left = sum(job.key(workload) not in done for job in planned for workload in job.workloads)
    if stopped:
        console.print(f"stopped; runs that are left: {left}; the same command goes on from here", highlight=False)
    return stopped or int(left > 0)


def _check_conditions(
    chosen: argparse.Namespace, workloads: Sequence[Workload], results: ResultsFile, console: Console
) -> None:
    """Says what differs from the runs in the file. Raises `ValueError` where figures would not compare."""
    if not (latest := results.latest()):
        return
    model = _model(chosen)
    trace, rate = Path(chosen.trace).name or None, LIMIT_SHARE * chosen.limit or None
    here = Settings(chosen.duration, chosen.warm_up, model.name, model.options, trace, rate)
    cases = {Case(workload.name, workload.profile) for workload in workloads}
    found = differences(latest, cases, Conditions(machine(), versions(), here))
    for line in told(found):
        console.print(f"differs: {line}", markup=False, highlight=False, soft_wrap=True)
    if not chosen.mix and not all(difference.mere_commit for difference in found):
        raise ValueError(f"{chosen.results}: was measured otherwise, see above: name another file, or say --mix")


def _compare(
    planned: Sequence[Job], chosen: argparse.Namespace, results: ResultsFile, trace: Trace | None, console: Console
) -> None:
    allow_many_connections()
    logs = Path(chosen.logs) if chosen.logs else None
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
    timing = Timing(chosen.warm_up, chosen.duration)
    comparison = Comparison(results, _model(chosen), timing, _command(chosen), console=console, logs=logs)
    for job in planned:
        comparison.run(job, _at_rate(trace, chosen, results, job.profile))


def _terminated(number: int, _: object) -> None:
    """All that was started is stopped on the way out."""
    sys.exit(128 + number)


def show(results: ResultsFile) -> None:
    """Tables of all that is in the file."""
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    latest = results.latest()
    for table in tables(latest):
        console.print(table)
    for line in failures(latest):
        console.print(f"left out: {line}", markup=False)


def _workloads(chosen: argparse.Namespace) -> list[Workload]:
    """Raises `ValueError` for one that needs a trace where none is named, or a GPU that is not simulated."""
    if chosen.real and ENGINE_ONLY in chosen.arms:
        raise ValueError(f"{ENGINE_ONLY} is for the simulated GPU: name other --arms")
    found = [WORKLOADS[name] for name in dict.fromkeys(chosen.workloads)]
    if lacking := [workload.name for workload in found if workload.needs_trace and not chosen.trace]:
        raise ValueError(f"{', '.join(lacking)}: name a trace, --trace FILE")
    profile = REAL if chosen.real else chosen.profile
    return [replace(workload, profile=profile) if profile else workload for workload in found]


def _plan(chosen: argparse.Namespace, workloads: Sequence[Workload], results: ResultsFile) -> list[Job]:
    arms = {name: ARMS[name]().gpus for name in dict.fromkeys(chosen.arms)}
    planned = list(jobs(arms, workloads, chosen.repeats, results.done()))
    needing = [job.profile for job in planned for workload in job.workloads if workload.needs_rate]
    unknown = [] if chosen.limit else [each for each in dict.fromkeys(needing) if not measured_limit(results, each)]
    return [*(limit_job(ENGINE_ONLY, profile) for profile in unknown), *planned]


def measured_limit(results: ResultsFile, profile: str) -> float:
    """Requests a second of the engine core alone with the trace's lengths, the median; 0 before it was measured."""
    latest = results.latest()
    found = [
        latest[key]["requests_s"]
        for key in results.done()
        if (key.arm, key.workload, key.profile) == (ENGINE_ONLY, LIMIT, profile)
    ]
    return median(found) if found else 0.0


def _at_rate(trace: Trace | None, chosen: argparse.Namespace, results: ResultsFile, profile: str) -> Trace | None:
    """The trace at the rate of W4; 0 while the limit is not known."""
    if trace is None:
        return None
    return replace(trace, rate=LIMIT_SHARE * (chosen.limit or measured_limit(results, profile)))


def _model(chosen: argparse.Namespace) -> Model:
    path = chosen.model or str(bundled_model_path())
    return Model(path, chosen.served_name or model_name(path), dict(chosen.engine_option))


def _command(chosen: argparse.Namespace) -> str:
    """What makes the same results again, without the folders of this machine."""
    words = ["python", "-m", "load.compare", "--arms", *chosen.arms, "--workloads", *chosen.workloads]
    words += ["--repeats", str(chosen.repeats), "--duration", f"{chosen.duration:g}"]
    words += ["--warm-up", f"{chosen.warm_up:g}", "--results", Path(chosen.results).name]
    for option in ("model", "trace"):
        if path := getattr(chosen, option):
            words += [f"--{option}", Path(path).name]
    for option in ("limit", "profile", "served_name"):
        if value := getattr(chosen, option):
            words += [f"--{option.replace('_', '-')}", str(value)]
    words += [
        text for name, value in chosen.engine_option for text in ("--engine-option", f"{name}={json.dumps(value)}")
    ]
    return shlex.join([*words, *(["--real"] if chosen.real else [])])


def _show_plan(planned: Sequence[Job], chosen: argparse.Namespace, console: Console) -> None:
    minutes = expected_s(planned, chosen.warm_up + chosen.duration) / 60
    runs = sum(len(job.workloads) for job in planned)
    console.print(f"{runs} runs, {len(planned)} starts, about {minutes:.0f} minutes")
    if chosen.dry_run:
        for job in planned:
            names = " ".join(workload.name for workload in job.workloads)
            console.print(f"repeat {job.repeat}: {job.arm} ({job.profile}, GPUs: {job.gpus}): {names}", markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m load.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--results", required=True, metavar="FILE", help="JSON lines; those that are there are not run again")
    add("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM", help=", ".join(ARMS))
    help_ = f"{', '.join(WORKLOADS)} (by default {' '.join(DEFAULT_WORKLOADS)})"
    add("--workloads", nargs="+", choices=list(WORKLOADS), default=DEFAULT_WORKLOADS, metavar="WORKLOAD", help=help_)
    add("--repeats", type=number(int, 1), default=3, metavar="N", help="(%(default)s)")
    add("--duration", type=number(float, 1), default=20.0, metavar="S", help="seconds of the window (%(default)g)")
    add("--warm-up", type=number(float, 0), default=8.0, metavar="S", help="seconds before it (%(default)g)")
    add("--trace", default="", metavar="FILE", help="for W4: Azure LLM 2023 as CSV, or Mooncake as JSON lines")
    limit = number(float, 0.001)
    add("--limit", type=limit, default=0.0, metavar="R", help="requests/s of which W4 gets 80 %%; else measured")
    help_ = f"of the simulated GPU, for all workloads instead of their own: {FORM}"
    add("--profile", type=parsed(_profile), metavar="PROFILE", help=help_)
    add("--real", action="store_true", help="no simulated GPU: the model runs")
    add("--model", default="", metavar="FOLDER", help="checkpoint, or a hub's name (the bundled model)")
    add("--served-name", default="", metavar="NAME", help="of the model (the last part of its path)")
    option = parsed(engine_option)
    add("--engine-option", action="append", default=[], type=option, metavar="NAME=JSON", help="of vLLM, for all arms")
    add("--logs", default="", metavar="FOLDER", help="keeps what all processes write")
    add("--mix", action="store_true", help="goes on in a file though conditions differ; the report keeps them apart")
    add("--dry-run", action="store_true", help="shows what would run, and ends")
    return parser


def _profile(text: str) -> str:
    """Raises `ValueError` for a name, or values, of no profile."""
    gpu_profile(text)
    return text


if __name__ == "__main__":
    sys.exit(main())
