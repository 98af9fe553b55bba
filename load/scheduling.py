"""`python -m load.scheduling`: which policy places tickets best, in virtual time.

Engines of `a + b · decoding + c · prompt tokens` a step, with prefix caches of blocks as vLLM has them, under the
scheduler's own policy and the usual ones. First the limit of each is measured (more arrives than can be served), then
all get 80 % of round robin's limit. `optimum` is our policy where it knows everything at once.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from pathlib import Path

from rich.console import Console
from rich.table import Table

from load.fleet import workloads
from load.fleet.arms import Load, Outcome, arms, run
from load.fleet.cost import WORKERS, memory_of, tick_costs
from load.fleet.engine import Shape
from load.fleet.workloads import LONG, PREFIX, PROMPTS, QUIET, SHORT, TENANTS
from load.generator.option_values import number, output_file, parsed
from load.gpu.profile import PROFILES
from load.workload.traces import TraceError, TraceRow, read_trace

EARLY_S = 5  # a long prompt that arrives so long before the end should have finished; shorter runs count nothing
SHARE, LONG_SHARE = 0.8, 0.05  # of round robin's limit; of all prompts
ROOM_PROMPTS, OWN = 16, 400
"""Of the shared prompts fit into a worker's cache beside what runs; a running request's own tokens, in whole blocks."""

SCENARIOS = ("shared", "conversations", "code", "long", "flood", "cost")
TRACES = {"conversations": "azure_llm_2023_conv.csv", "code": "azure_llm_2023_code.csv"}
POLICIES = [arm.name for arm in arms(1)]

Cells = dict[str, str | float | None]
Rows = list[Cells]
Traces = Mapping[str, Sequence[TraceRow]]


def shape_of(profile: str, slots: int = 128, kv_tokens: int = 0) -> Shape:
    """A worker of a GPU profile of `load.simulated_gpu`."""
    gpu = PROFILES[profile]
    kv_tokens = kv_tokens or ROOM_PROMPTS * PREFIX + slots * OWN
    return Shape(gpu.a_ms / 1e3, gpu.b_ms / 1e3, gpu.c_ms / 1e3, slots=slots, kv_tokens=kv_tokens)


class Comparison:
    """One table after the other."""

    def __init__(self, workers: int, profile: str, seconds: float, traces: Traces, only: Sequence[str]) -> None:
        self._workers = workers
        self._seconds = seconds
        self._traces = traces
        self._shape = shape_of(profile)
        self._large = shape_of(profile, kv_tokens=400_000)
        self._arms = [arm for arm in arms(PREFIX // self._shape.block_tokens) if arm.name in only]

    def tables(self, names: Sequence[str]) -> Iterator[tuple[str, Rows]]:
        """By name, in the order of `SCENARIOS`."""
        for name in (name for name in SCENARIOS if name in names):
            if name in TRACES:
                yield from self._trace(f"Azure {name}", self._traces[name])
            else:
                yield from _cost() if name == "cost" else getattr(self, f"_{name}")()

    def _shared(self) -> Iterator[tuple[str, Rows]]:
        def load(rate: float) -> Load:
            jobs = partial(workloads.shared_prefixes, rate, self._seconds, self._shape.block_tokens)
            return Load(self._workers, self._shape, self._seconds, jobs, TENANTS)

        yield from self._limit_and_share(f"{PROMPTS} shared prompts", load, plenty=100.0 * self._workers)

    def _trace(self, title: str, rows: Sequence[TraceRow]) -> Iterator[tuple[str, Rows]]:
        def load(rate: float) -> Load:
            speed = rate * rows[-1].at / len(rows)
            seconds = min(rows[-1].at / speed, self._seconds)
            return Load(self._workers, self._large, seconds, partial(workloads.of_trace, rows, speed, seconds))

        yield from self._limit_and_share(title, load, plenty=100.0 * self._workers)

    def _limit_and_share(self, title: str, load: Callable[[float], Load], plenty: float) -> Iterator[tuple[str, Rows]]:
        limits, title = [run(arm, load(plenty)) for arm in self._arms], f"{title}, {self._workers} workers"
        yield f"{title}, more than they can serve", [_cells(one) for one in limits]
        rate = SHARE * _limit(limits[0]).served_s
        yield f"{title}, {rate:.1f} requests/s", [_cells(run(arm, load(rate))) for arm in self._arms]

    def _long(self) -> Iterator[tuple[str, Rows]]:
        """The short ones' own values without and with long ones, at half and at 80 % of round robin's limit."""

        def load(rate: float, longs: bool = True) -> Load:
            jobs = partial(workloads.long_and_short, rate, self._seconds, LONG_SHARE, longs=longs)
            return Load(self._workers, self._large, self._seconds, jobs, 2)

        limit = _limit(run(self._arms[0], load(400.0 * self._workers)))
        tokens_s = sum(job.prompt for job in limit.served) / (limit.until - limit.since)
        for share in (0.5, SHARE):
            rate = share * tokens_s / (SHORT + LONG_SHARE * (LONG - SHORT))
            found = [_long_cells(run(arm, load(rate, longs=False)), run(arm, load(rate))) for arm in self._arms]
            title = f"5 % of prompts 100 times as long, {self._workers} workers, {rate:.1f} requests/s"
            yield f"{title}: TTFT of the short prompts in ms, at the end that of the long ones", found

    def _flood(self) -> Iterator[tuple[str, Rows]]:
        """One tenant's values while another asks for as much as it, and while that one asks for ten times as much."""

        def load(quiet: float, loud: float) -> Load:
            jobs = partial(workloads.flood, quiet, loud, self._seconds)
            return Load(self._workers, self._large, self._seconds, jobs, 2)

        limit = _limit(run(self._arms[0], load(100.0 * self._workers, 100.0 * self._workers)))
        fair = SHARE * limit.served_s / 2
        found = [_flood_cells(run(arm, load(fair, fair)), run(arm, load(fair, 10 * fair))) for arm in self._arms]
        title = f"a tenant that floods, {self._workers} workers, {fair:.1f} requests/s of the other"
        yield f"{title}: its TTFT in ms", found


def _limit(found: Outcome) -> Outcome:
    if not found.served:
        raise SystemExit(f"nothing was served in {found.until:g} s of virtual time: --seconds is too short for this")
    return found


def _cost() -> Iterator[tuple[str, Rows]]:
    """Not in virtual time: this machine's."""
    rows: Rows = [
        {
            "workers": one.case,
            "waiting": one.waiting,
            "placed": one.placed,
            "tick ms": round(1e3 * one.tick_s, 1),
            "a ticket us": round(1e6 * one.ticket_s),
        }
        for one in tick_costs()
    ]
    yield f"a tick of {WORKERS} workers that know 10,000 prefixes of 2,000 tokens", rows
    size, blocks = memory_of()
    yield "memory of what is known", [{"blocks": blocks, "MiB": round(size / 2**20), "bytes a block": size // blocks}]


def _shown(value: float, digits: int = 1) -> float | None:
    """None where nothing was counted."""
    return round(value, digits) if isfinite(value) else None


def _cells(one: Outcome) -> Cells:
    return {
        "policy": one.arm,
        "served/s": round(one.served_s, 1),
        "TTFT mean ms": _shown(1e3 * one.mean_ttft_s),
        "p50": _shown(1e3 * one.ttft_s(50)),
        "p99": _shown(1e3 * one.ttft_s(99)),
        "hits %": round(100 * one.hit_share, 1),
        "foreseen %": round(100 * one.foreseen, 1),
        "max/min": _shown(one.fairness, 2),
        "busy %": round(100 * one.busy),
    }


def _long_cells(without: Outcome, mixed: Outcome) -> Cells:
    early = [job for job in mixed.jobs if job.tenant == "long" and job.at < mixed.until - EARLY_S]
    alone, with_long = without.ttft_s(99, "short"), mixed.ttft_s(99, "short")
    return {
        "policy": mixed.arm,
        "p50, alone": _shown(1e3 * without.ttft_s(50, "short")),
        "p50, with long": _shown(1e3 * mixed.ttft_s(50, "short")),
        "p99, alone": _shown(1e3 * alone),
        "p99, with long": _shown(1e3 * with_long),
        "p99 ratio": _shown(with_long / alone, 2),
        "long p50": _shown(1e3 * mixed.ttft_s(50, "long")),
        "long p99": _shown(1e3 * mixed.ttft_s(99, "long")),
        "long finished %": round(100 * sum(job.end >= 0 for job in early) / len(early), 1) if early else None,
    }


def _flood_cells(before: Outcome, after: Outcome) -> Cells:
    alone, flooded = before.ttft_s(50, QUIET), after.ttft_s(50, QUIET)
    return {
        "policy": after.arm,
        "p50 before": _shown(1e3 * alone),
        "p50 in the flood": _shown(1e3 * flooded),
        "p50 ratio": _shown(flooded / alone, 2),
        "p99 before": _shown(1e3 * before.ttft_s(99, QUIET)),
        "p99 in the flood": _shown(1e3 * after.ttft_s(99, QUIET)),
        "refused": after.refused,
    }


def table(title: str, rows: Rows) -> Table:
    """For a person."""
    shown = Table(title=title, title_justify="left")
    for name in rows[0]:
        shown.add_column(name, justify="left" if name == "policy" else "right")
    for row in rows:
        shown.add_row(*("—" if value is None else f"{value}" for value in row.values()))
    return shown


def _read_traces(folder: Path, names: Sequence[str]) -> tuple[Traces, list[str]]:
    """Those that are there, and what to say of the others. Raises `TraceError`."""
    where = f"of the Azure LLM inference traces 2023 (Azure Public Dataset: {', '.join(TRACES.values())})"
    there = [name for name in names if (folder / TRACES[name]).is_file()]
    missing = [f"{name}: no {folder / TRACES[name]}, {where}: --traces FOLDER" for name in names if name not in there]
    return {name: read_trace(folder / TRACES[name]) for name in there}, missing


def _parsed(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, Sequence[str], Traces]:
    """Also scenarios and traces. An option that takes more than one argument would take the scenario as well."""
    parser = argparse.ArgumentParser(prog="python -m load.scheduling", description=__doc__)
    count, seconds = number(int, 1, 1024), number(float, EARLY_S, 3600)
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(SCENARIOS)}; all by default")
    several = "how many; several with commas: 4,16 is the default"
    parser.add_argument("--workers", type=lambda text: [*map(count, text.split(","))], default=[4, 16], help=several)
    parser.add_argument("--profile", choices=list(PROFILES), default="fast")
    parser.add_argument("--seconds", type=seconds, default=30.0, help="of virtual time, a third of it to warm up")
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"), help="folder of the Azure traces")
    only = f"one policy or several, with commas, of {', '.join(POLICIES)}; the first in this order sets the rate"
    parser.add_argument("--only", type=lambda text: text.split(","), default=POLICIES, help=only)
    parser.add_argument("--json", type=parsed(output_file), default="", help="file for the same in JSON")
    chosen = parser.parse_args(arguments)
    for what, known, given in (("scenario", SCENARIOS, chosen.scenario), ("policy", POLICIES, chosen.only)):
        if wrong := [name for name in given if name not in known]:
            parser.error(f"no {what} is called {wrong[0]!r}: there are {', '.join(known)}")
    names = chosen.scenario or SCENARIOS
    try:
        traces, missing = _read_traces(chosen.traces, [name for name in TRACES if name in names])
    except TraceError as error:
        parser.error(f"{error}")
    if missing and chosen.scenario:
        parser.error("; ".join(missing))
    for reason in missing:
        print(f"skipped {reason}", file=sys.stderr)
    return chosen, [name for name in names if name in traces or name not in TRACES], traces


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    chosen, names, traces = _parsed(arguments)
    console, lines = Console(width=160), list[dict[str, object]]()
    for workers in chosen.workers:
        comparison = Comparison(workers, chosen.profile, chosen.seconds, traces, chosen.only)
        for title, rows in comparison.tables(names):
            console.print(table(title, rows))
            lines += [{"title": title, "profile": chosen.profile, **row} for row in rows]
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
