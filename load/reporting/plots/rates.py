"""Time to first token over the offered rate: 512 tokens in, 128 out, Poisson arrivals."""

# pyright: reportUnknownMemberType=false
# (matplotlib's own stubs leave `**kwargs` without a type)

import re

from matplotlib.figure import Figure

from load.reporting.arms import rank
from load.reporting.metrics import TTFT_P50, TTFT_P99
from load.reporting.plots import style
from load.reporting.results import Results
from load.reporting.targets import FAST

_NAME = re.compile(r"W1-([\d.]+)s")
LEAST = 2
"""Rates; one is no curve."""


def draw(results: Results) -> Figure | None:
    """None where fewer than two rates were measured."""
    named = ((case, _NAME.fullmatch(case.workload)) for case in results.cases if case.profile == FAST)
    rates = dict(sorted((float(found[1]), case) for case, found in named if found))
    if len(rates) < LEAST:
        return None
    made, panels = style.figure(2)
    for axes, metric in zip(panels, (TTFT_P50, TTFT_P99), strict=True):
        for arm in sorted({arm for case in rates.values() for arm in results.arms(case)}, key=rank):
            found = {rate: metric.spread(results, case, arm) for rate, case in rates.items()}
            known = {rate: spread for rate, spread in found.items() if spread}
            style.line(axes, arm, list(known), [spread.median for spread in known.values()])
            style.band(axes, arm, list(known), [s.low for s in known.values()], [s.high for s in known.values()])
        axes.set_yscale("log")
        axes.set_ylim(style.milliseconds(axes.yaxis, *axes.get_ylim()))
        axes.set_xticks(list(rates), [f"{rate:g}" for rate in rates])
        style.title(axes, metric.name)
        axes.set_xlabel("offered requests/s")
    panels[0].set_ylabel("ms")
    style.legend(made, panels[0])
    return made
