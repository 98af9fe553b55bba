"""`python -m load.autoscaling`: what the autoscaler saves, and what it costs those who ask, in virtual time.

The Azure traces at their own pace, each request so many times that a fleet sized for the peak has 10 to 20 replicas of
`h100-70b` with steps of 512 tokens. A replica takes 60 s to start and costs from when it is asked for until it has
drained. A request is well served with its first token within 2 s and the others within 0.1 s each on average.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from load.fleet.engine import Shape
from load.fleet.scaling import VARIATIONS, Outcome, Traffic, fixed, perfect, scaled
from load.generator.option_values import number, output_file, parsed
from load.gpu.profile import PROFILES
from load.scheduling import TRACES, Rows, table
from load.workload.traces import TraceError, read_trace
from stages.autoscaling.rules import Rules

PROFILE, SLOTS, KV_TOKENS, BLOCK_TOKENS = "h100-70b", 128, 400_000, 500
STEP_TOKENS = 512
"""A step full of prompts takes 87 ms: with vLLM's 2048 it would be 271, and no answer would keep its pace."""

COPIES = {"code": 1, "conversations": 6}
SPREAD_S = 15.0
SCENARIOS = ("main", "rules", "scalings")
SCALINGS: dict[str, tuple[tuple[int, float, int], ...]] = {
    "code": ((1, 0.0, 1), (2, 5.0, 1), (2, 15.0, 1), (2, 15.0, 2), (2, 30.0, 1)),
    "conversations": ((4, 15.0, 1), (6, 5.0, 1), (6, 15.0, 1), (6, 15.0, 2), (6, 30.0, 1)),
}
"""Copies, seconds that these are apart at most, seed."""


@dataclass(frozen=True)
class Bench:
    """One trace, and what is asked of it."""

    name: str
    traffic: Traffic
    shape: Shape
    rules: Rules

    def tables(self, scenarios: Sequence[str]) -> Iterator[tuple[str, Rows]]:
        """Raises `ValueError` where no fleet is large enough."""
        peak = fixed(self.traffic, self.shape)
        if "main" in scenarios:
            yield f"Azure {self.name}, {_scaling(self.traffic)}, a start of {self.rules.start_s:g} s", self._main(peak)
        if "rules" in scenarios:
            yield f"Azure {self.name}: one rule at a time, or another start", self._rules(peak)
        if "scalings" in scenarios:
            yield f"Azure {self.name}: other copies and seeds", [*self._scalings()]

    def _main(self, peak: Outcome) -> Rows:
        ours = scaled(self.traffic, self.shape, peak.most, self.rules)
        little = scaled(self.traffic, self.shape, 1, self.rules, "autoscaler, from 1 replica")
        known = perfect(self.traffic, self.shape, peak.most, self.rules.start_s)
        return [self._cells(one, peak) for one in (peak, ours, little, known)]

    def _rules(self, peak: Outcome) -> Rows:
        made = {name: make(self.rules) for name, make in VARIATIONS.items()}
        return [
            self._cells(scaled(self.traffic, self.shape, peak.most, rules, name), peak) for name, rules in made.items()
        ]

    def _scalings(self) -> Iterator[dict[str, str | float | None]]:
        for times, spread_s, seed in SCALINGS[self.name]:
            traffic = replace(self.traffic, times=times, spread_s=spread_s, seed=seed)
            peak = fixed(traffic, self.shape)
            ours = scaled(traffic, self.shape, peak.most, self.rules, f"{_scaling(traffic)}, seed {seed}")
            yield {**self._cells(ours, peak), "fixed": peak.most}

    def _cells(self, one: Outcome, peak: Outcome) -> dict[str, str | float | None]:
        return {
            "fleet": one.arm,
            "replica hours": round(one.replica_s / 3600, 2),
            "saved %": round(100 * (1 - one.replica_s / peak.replica_s), 1),
            "served well %": round(100 * one.served, 2),
            "points": round(100 * (one.served - peak.served), 2),
            "most": one.most,
        }


def _scaling(traffic: Traffic) -> str:
    return f"{traffic.times} x within {traffic.spread_s:g} s" if traffic.times > 1 else "as recorded"


def shape() -> Shape:
    gpu = PROFILES[PROFILE]
    return Shape(
        gpu.a_ms / 1e3,
        gpu.b_ms / 1e3,
        gpu.c_ms / 1e3,
        slots=SLOTS,
        kv_tokens=KV_TOKENS,
        block_tokens=BLOCK_TOKENS,
        step_tokens=STEP_TOKENS,
        chunk=STEP_TOKENS,
    )


def _benches(chosen: argparse.Namespace) -> list[Bench]:
    """Of the traces that are there; what is missing is said. Raises `TraceError`."""
    found: list[Bench] = []
    rules = Rules(1, 128, start_s=chosen.start)
    for name in chosen.trace or TRACES:
        file = chosen.traces / TRACES[name]
        if not file.is_file():
            print(f"skipped {name}: no {file}, of the Azure Public Dataset: --traces FOLDER", file=sys.stderr)
            continue
        times = chosen.times or COPIES[name]
        traffic = Traffic(read_trace(file), times, SPREAD_S if times > 1 else 0.0, chosen.seed)
        found.append(Bench(name, traffic, shape(), rules))
    return found


def _parsed(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[Bench]]:
    parser = argparse.ArgumentParser(prog="python -m load.autoscaling", description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(SCENARIOS)}; main by default")
    parser.add_argument("--trace", action="append", choices=list(TRACES), help="only this one")
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"), help="folder of the Azure traces")
    parser.add_argument("--start", type=number(float, 1, 3600), default=60.0, help="seconds until a replica takes work")
    each = f"how often each request comes; {', '.join(f'{name} {count}' for name, count in COPIES.items())} by default"
    parser.add_argument("--times", type=number(int, 1, 100), default=0, help=each)
    parser.add_argument("--seed", type=number(int, 0), default=1, help="of when the copies of a request come")
    parser.add_argument("--json", type=parsed(output_file), default="", help="file for the same in JSON")
    chosen = parser.parse_args(arguments)
    if wrong := [name for name in chosen.scenario if name not in SCENARIOS]:
        parser.error(f"no scenario is called {wrong[0]!r}: there are {', '.join(SCENARIOS)}")
    try:
        benches = _benches(chosen)
    except TraceError as error:
        parser.error(f"{error}")
    if not benches:
        parser.error("there is no trace: --traces FOLDER")
    return chosen, benches


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    chosen, benches = _parsed(arguments)
    console, lines = Console(width=160), list[dict[str, object]]()
    for bench in benches:
        try:
            for title, rows in bench.tables(chosen.scenario or ["main"]):
                console.print(table(title, rows))
                lines += [{"title": title, **row} for row in rows]
        except ValueError as error:
            raise SystemExit(f"{bench.name}: {error}") from error
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
