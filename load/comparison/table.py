"""What a comparison found, for a person: a table for each workload, medians over the repeats, and ratios."""

from collections.abc import Iterator, Mapping

import msgspec
from rich.table import Table

from load.comparison.results import Key, Result
from load.reporting import metrics
from load.reporting.arms import LIMIT, MONOLITH
from load.reporting.metrics import Metric
from load.reporting.results import Case, Results, Run
from load.reporting.spread import Spread, number


def _engine_cpu(run: Run) -> float | None:
    return metrics.per_thousand_tokens(run, metrics.cpu_s(run, "engine"))


def _peak_mb(run: Run) -> float | None:
    peaks = [process.peak_mb or 0.0 for process in run.processes if process.role in metrics.SERVING]
    return sum(peaks) if peaks else None


COLUMNS: tuple[tuple[str, Metric], ...] = (
    ("GPU busy, %", metrics.GPU_BUSY),
    ("decode per step", metrics.DECODE),
    ("events per token", metrics.EVENTS),
    ("ITL p50, ms", metrics.ITL_P50),
    ("TTFT p50, ms", metrics.TTFT_P50),
    ("TTFT p99, ms", metrics.TTFT_P99),
    ("servers: CPU ms per 1,000 tokens", metrics.CPU_OUTSIDE),
    ("engine core: likewise", Metric("CPU of the engine core", "ms", _engine_cpu)),
    ("peak MiB", Metric("resident memory, the sum of all peaks", "MiB", _peak_mb)),
)


def tables(latest: Mapping[Key, Result]) -> Iterator[Table]:
    """Of all sound runs. Ratios compare within a repeat, then the median is taken."""
    sound = [result for result in latest.values() if "failed" not in result]
    results = Results(("", msgspec.convert(result, Run)) for result in sound)
    return (_table(results, case) for case in results.cases)


def failures(latest: Mapping[Key, Result]) -> Iterator[str]:
    """A line for each run that is not in the tables."""
    for key, result in latest.items():
        if reason := result.get("failed"):
            yield f"{key.arm}, {key.workload} ({key.profile}), repeat {key.repeat}: {reason}"


def _table(results: Results, case: Case) -> Table:
    shown = Table(title=f"{case.workload} ({case.profile})", title_justify="left")
    shown.add_column("arm", no_wrap=True)
    for heading in ("requests/s", f"x {LIMIT}", f"x {MONOLITH}", *(name for name, _ in COLUMNS), "repeats"):
        shown.add_column(heading, justify="right")
    for arm in results.arms(case):
        requests = metrics.REQUESTS_S
        ratios = [requests.ratio(results, case, arm, other) for other in (LIMIT, MONOLITH)]
        spreads = [requests.spread(results, case, arm), *ratios]
        spreads += [metric.spread(results, case, arm) for _, metric in COLUMNS]
        shown.add_row(arm, *map(_median, spreads), str(len(results.runs(case, arm))))
    return shown


def _median(spread: Spread | None) -> str:
    return number(spread.median) if spread else "-"
