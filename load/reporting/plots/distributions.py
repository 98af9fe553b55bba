"""How TTFT and ITL are distributed at one workload: the share of readings below each time."""

# pyright: reportUnknownMemberType=false
# (matplotlib's own stubs leave `**kwargs` without a type)

import statistics

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from load.reporting.plots import style
from load.reporting.results import Case, Results

_SHARES = [float(share) for share in range(101)]
_LEAST_MS = 0.5
"""A logarithmic axis has no zero: chunks that were read at once stand here."""


def draw(results: Results, case: Case) -> Figure | None:
    """None where no arm has both distributions."""
    arms = [arm for arm in results.arms(case) if all(_curve(results, case, arm, f) for f in ("ttft_ms", "itl_ms"))]
    if not arms:
        return None
    made, (left, right) = style.figure(2)
    for axes, field, name in ((left, "ttft_ms", "Time to first token"), (right, "itl_ms", "Time between two chunks")):
        for arm in arms:
            style.line(axes, arm, _curve(results, case, arm, field), _SHARES, marked=False)
        _axes(axes, name)
    left.set_ylabel("share of readings, %")
    style.legend(made, left)
    return made


def _curve(results: Results, case: Case, arm: str, field: str) -> list[float]:
    """The median over the repeats of each quantile."""
    runs = results.runs(case, arm).values()
    measured = [found for run in runs if len(found := run.quantiles.get(field, [])) == len(_SHARES)]
    return [max(statistics.median(values), _LEAST_MS) for values in zip(*measured, strict=True)]


def _axes(axes: Axes, title: str) -> None:
    style.title(axes, title)
    axes.set_xscale("log")
    axes.set_xlim(style.milliseconds(axes.xaxis, *axes.get_xlim()))
    axes.set_xlabel("ms")
    axes.set_ylim(0, 101)
