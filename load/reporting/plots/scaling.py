"""Throughput over the number of GPUs, as a multiple of one GPU's."""

# pyright: reportUnknownMemberType=false
# (matplotlib's own stubs leave `**kwargs` without a type)

from matplotlib.figure import Figure

from load.reporting.arms import rank
from load.reporting.metrics import REQUESTS_S
from load.reporting.plots import style
from load.reporting.replicas import ladders
from load.reporting.results import Case, Results
from load.reporting.spread import Spread


def draw(results: Results) -> Figure | None:
    """None where no workload was measured with more than one number of GPUs, one of them 1."""
    steps = next((steps for steps in ladders(results).values() if 1 in steps), None)
    if not steps:
        return None
    made, (axes,) = style.figure(1, width=6.4)
    counts = list(steps)
    axes.plot(counts, counts, color="#999999", linestyle=":", linewidth=1.2, label="as many times as GPUs")
    for arm in sorted({arm for case in steps.values() for arm in results.arms(case)}, key=rank):
        found = {count: _multiple(results, arm, case, steps[1]) for count, case in steps.items()}
        known = {float(count): spread for count, spread in found.items() if spread}
        style.line(axes, arm, list(known), [spread.median for spread in known.values()])
        style.band(axes, arm, list(known), [s.low for s in known.values()], [s.high for s in known.values()])
    axes.set_xticks(counts)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("requests/s, multiple of one GPU's")
    style.legend(made, axes, columns=3)
    return made


def _multiple(results: Results, arm: str, case: Case, one: Case) -> Spread | None:
    """Repeat by repeat."""
    many, single = (REQUESTS_S.by_repeat(results.runs(at, arm)) for at in (case, one))
    return Spread.of(many[repeat] / single[repeat] for repeat in many if single.get(repeat))
