"""Throughput and GPU busy over concurrency: 512 tokens in, 128 out, closed loop."""

# pyright: reportUnknownMemberType=false
# (matplotlib's own stubs leave `**kwargs` without a type)

import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from load.reporting.arms import rank
from load.reporting.metrics import GPU_BUSY, REQUESTS_S, Metric
from load.reporting.plots import style
from load.reporting.results import Case, Results
from load.reporting.spread import Spread
from load.reporting.targets import FAST

_NAME = re.compile(r"(?:W1-)?C(\d+)")
LEAST = 2
"""Levels of concurrency; one is no curve."""


def draw(results: Results) -> Figure | None:
    """None where fewer than two levels were measured."""
    levels = _levels(results)
    if len(levels) < LEAST:
        return None
    made, (left, right) = style.figure(2)
    for axes, metric, label in ((left, REQUESTS_S, "requests/s"), (right, GPU_BUSY, "GPU busy, %")):
        _panel(axes, results, levels, metric)
        axes.set_ylabel(label)
    style.title(left, "Throughput")
    style.title(right, "GPU busy")
    left.set_ylim(bottom=0)
    right.set_ylim(0, 102)
    style.legend(made, left)
    return made


def repeated(results: Results) -> bool:
    """Whether a band is more than a line: some arm has more than one repeat."""
    return any(len(results.runs(case, arm)) > 1 for case in _levels(results).values() for arm in results.arms(case))


def _levels(results: Results) -> dict[int, Case]:
    """Cases by their concurrency."""
    named = ((case, _NAME.fullmatch(case.workload)) for case in results.cases if case.profile == FAST)
    return dict(sorted((int(found[1]), case) for case, found in named if found))


def _panel(axes: Axes, results: Results, levels: dict[int, Case], metric: Metric) -> None:
    arms = sorted({arm for case in levels.values() for arm in results.arms(case)}, key=rank)
    for arm in arms:
        found = {level: metric.spread(results, case, arm) for level, case in levels.items()}
        _curve(axes, arm, {level: spread for level, spread in found.items() if spread})
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(levels), [str(level) for level in levels])
    axes.minorticks_off()
    axes.set_xlabel("requests at once")


def _curve(axes: Axes, arm: str, points: dict[int, Spread]) -> None:
    at = [float(level) for level in points]
    style.line(axes, arm, at, [spread.median for spread in points.values()])
    style.band(axes, arm, at, [spread.low for spread in points.values()], [spread.high for spread in points.values()])
