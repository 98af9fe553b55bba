"""`python -m load.scheduling`: which policy places tickets best, in virtual time.

Engines of `a + b · decoding + c · prompt tokens` a step, with prefix caches of blocks as vLLM has them, under the
scheduler's own policy and the usual ones. First the limit of each is measured (more arrives than can be served), then
all get 80 % of round robin's limit. `optimum` is our policy where it knows everything at once.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from load.fleet.arms import Load, Outcome, arms, run
from load.fleet.cost import WORKERS, memory_of, tick_costs
from load.fleet.engine import Shape
from load.fleet.workloads import (
    LONG,
    PREFIX,
    PROMPTS,
    QUIET,
    SHORT,
    TENANTS,
    flood,
    long_and_short,
    of_trace,
    shared_prefixes,
)
from load.gpu.profile import PROFILES
from load.workload.traces import TraceRow, read_trace

SHARE = 0.8
"""Of round robin's limit."""

ROOM_PROMPTS = 16
"""Of the shared prompts fit into a worker's cache, beside what runs."""

OWN = 400
"""Tokens of a running request that are its own, in whole blocks."""

LONG_SHARE = 0.05

Cells = dict[str, str | float]
Rows = list[Cells]


def shape_of(profile: str, slots: int = 128, kv_tokens: int = 0) -> Shape:
    """A worker of a GPU profile of `load.simulated_gpu`."""
    gpu = PROFILES[profile]
    kv_tokens = kv_tokens or ROOM_PROMPTS * PREFIX + slots * OWN
    return Shape(gpu.a_ms / 1e3, gpu.b_ms / 1e3, gpu.c_ms / 1e3, slots=slots, kv_tokens=kv_tokens)


class Comparison:
    """One table after the other."""

    def __init__(self, workers: int, profile: str, seconds: float, traces: Path, only: Sequence[str]) -> None:
        self._workers = workers
        self._profile = profile
        self._seconds = seconds
        self._traces = traces
        self._shape = shape_of(profile)
        self._large = shape_of(profile, kv_tokens=400_000)
        self._arms = [arm for arm in arms(PREFIX // self._shape.block_tokens) if not only or arm.name in only]

    def tables(self, names: Sequence[str]) -> Iterator[tuple[str, Rows]]:
        """By name, in the order of `SCENARIOS`."""
        for name in SCENARIOS:
            if name == "cost" and name in names:
                yield from _cost()
            elif name in names:
                yield from getattr(self, f"_{name}")()

    def _shared(self) -> Iterator[tuple[str, Rows]]:
        size = self._shape.block_tokens

        def load(rate: float) -> Load:
            jobs = partial(shared_prefixes, rate, self._seconds, size)
            return Load(self._workers, self._shape, self._seconds, jobs, TENANTS)

        yield from self._limit_and_share(f"{PROMPTS} shared prompts", load, plenty=100.0 * self._workers)

    def _conversations(self) -> Iterator[tuple[str, Rows]]:
        yield from self._trace("Azure conversations", "azure_llm_2023_conv.csv")

    def _code(self) -> Iterator[tuple[str, Rows]]:
        yield from self._trace("Azure code", "azure_llm_2023_code.csv")

    def _trace(self, title: str, name: str) -> Iterator[tuple[str, Rows]]:
        rows = read_trace(self._traces / name)
        mean_s = rows[-1].at / len(rows)

        def load(rate: float) -> Load:
            return self._of_trace(rows, rate * mean_s)

        yield from self._limit_and_share(title, load, plenty=100.0 * self._workers)

    def _of_trace(self, rows: Sequence[TraceRow], speed: float) -> Load:
        seconds = min(rows[-1].at / speed, self._seconds)
        return Load(self._workers, self._large, seconds, partial(of_trace, rows, speed, seconds))

    def _limit_and_share(self, title: str, load: Callable[[float], Load], plenty: float) -> Iterator[tuple[str, Rows]]:
        limits = [run(arm, load(plenty)) for arm in self._arms]
        yield f"{title}, {self._workers} workers, more than they can serve", [_cells(one) for one in limits]
        rate = SHARE * limits[0].served_s
        yield (
            f"{title}, {self._workers} workers, {rate:.1f} requests/s",
            [_cells(run(arm, load(rate))) for arm in self._arms],
        )

    def _long(self) -> Iterator[tuple[str, Rows]]:
        """The short ones' own values without and with long ones, at half and at 80 % of round robin's limit."""

        def load(rate: float, longs: bool = True) -> Load:
            jobs = partial(long_and_short, rate, self._seconds, LONG_SHARE, longs=longs)
            return Load(self._workers, self._large, self._seconds, jobs, 2)

        limit = run(self._arms[0], load(400.0 * self._workers))
        tokens_s = sum(job.prompt for job in limit.served) / (limit.until - limit.since)
        for share in (0.5, SHARE):
            rate = share * tokens_s / (SHORT + LONG_SHARE * (LONG - SHORT))
            found = [_long_cells(run(arm, load(rate, longs=False)), run(arm, load(rate))) for arm in self._arms]
            yield f"5 % of prompts 100 times as long, {self._workers} workers, {rate:.1f} requests/s", found

    def _flood(self) -> Iterator[tuple[str, Rows]]:
        """One tenant's values while another asks for as much as it, and while that one asks for ten times as much."""

        def load(quiet: float, loud: float) -> Load:
            jobs = partial(flood, quiet, loud, self._seconds)
            return Load(self._workers, self._large, self._seconds, jobs, 2)

        limit = run(self._arms[0], load(100.0 * self._workers, 100.0 * self._workers)).served_s
        fair = SHARE * limit / 2
        found: Rows = []
        for arm in self._arms:
            before, after = run(arm, load(fair, fair)), run(arm, load(fair, 10 * fair))
            found.append(_flood_cells(before, after))
        yield f"a tenant that floods, {self._workers} workers, {fair:.1f} requests/s of the other", found


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


SCENARIOS = ("shared", "conversations", "code", "long", "flood", "cost")


def _cells(one: Outcome) -> Cells:
    return {
        "policy": one.arm,
        "served/s": round(one.served_s, 1),
        "TTFT mean ms": round(1e3 * one.mean_ttft_s, 1),
        "p50": round(1e3 * one.ttft_s(50), 1),
        "p99": round(1e3 * one.ttft_s(99), 1),
        "hits %": round(100 * one.hit_share, 1),
        "foreseen %": round(100 * one.foreseen, 1),
        "max/min": round(one.fairness, 2),
        "busy %": round(100 * one.busy),
    }


def _long_cells(without: Outcome, mixed: Outcome) -> Cells:
    longs = [job for job in mixed.jobs if job.tenant == "long"]
    early = [job for job in longs if job.at < mixed.until - 5]
    alone, with_long = without.ttft_s(99, "short"), mixed.ttft_s(99, "short")
    return {
        "policy": mixed.arm,
        "short p50 ms, alone": round(1e3 * without.ttft_s(50, "short"), 1),
        "p50 ms, with long": round(1e3 * mixed.ttft_s(50, "short"), 1),
        "short p99 ms, alone": round(1e3 * alone, 1),
        "p99 ms, with long": round(1e3 * with_long, 1),
        "ratio": round(with_long / alone, 2),
        "long p50 ms": round(1e3 * mixed.ttft_s(50, "long"), 1),
        "long p99 ms": round(1e3 * mixed.ttft_s(99, "long"), 1),
        "long finished %": round(100 * sum(job.end >= 0 for job in early) / max(len(early), 1), 1),
    }


def _flood_cells(before: Outcome, after: Outcome) -> Cells:
    alone, flooded = before.ttft_s(50, QUIET), after.ttft_s(50, QUIET)
    return {
        "policy": after.arm,
        "p50 ms before": round(1e3 * alone, 1),
        "p50 ms in the flood": round(1e3 * flooded, 1),
        "ratio": round(flooded / alone, 2),
        "p99 ms before": round(1e3 * before.ttft_s(99, QUIET), 1),
        "p99 ms in the flood": round(1e3 * after.ttft_s(99, QUIET), 1),
        "refused": after.refused,
    }


def table(title: str, rows: Rows) -> Table:
    """For a person."""
    shown = Table(title=title, title_justify="left")
    for name in rows[0]:
        shown.add_column(name, justify="left" if name == "policy" else "right")
    for row in rows:
        shown.add_row(*(f"{value}" for value in row.values()))
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m load.scheduling", description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(SCENARIOS)}; all by default")
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--profile", choices=list(PROFILES), default="fast")
    parser.add_argument("--seconds", type=float, default=30.0, help="of virtual time, a third of it to warm up")
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"), help="folder of the Azure traces")
    parser.add_argument("--only", nargs="+", default=[], help="policies; the first sets the rate")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args(arguments)
    if wrong := [name for name in chosen.scenario if name not in SCENARIOS]:
        parser.error(f"no scenario is called {wrong[0]}: there are {', '.join(SCENARIOS)}")
    console, lines = Console(width=160), list[dict[str, object]]()
    for workers in chosen.workers:
        comparison = Comparison(workers, chosen.profile, chosen.seconds, chosen.traces, chosen.only)
        for title, rows in comparison.tables(chosen.scenario or SCENARIOS):
            console.print(table(title, rows))
            lines += [{"title": title, "profile": chosen.profile, **row} for row in rows]
    if chosen.json:
        chosen.json.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
