"""Plots show what the lines say, can be read on any page, and are left out by name where lines are missing."""

import re
from pathlib import Path
from typing import cast

import pytest
from matplotlib.axes import Axes
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from load.reporting import arms
from load.reporting.plots import concurrency, cpu, distributions, rates, scaling, style
from load.reporting.plots.gallery import draw_all, plots
from load.reporting.results import Case
from tests.unit.load.reporting.factory import C64, comparison, line, process, quantiles, results


def curves(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """The points of every line of a panel, by its label."""
    return {
        str(line.get_label()): [(float(x), float(y)) for x, y in cast("list[tuple[float, float]]", line.get_xydata())]
        for line in axes.get_lines()
    }


def test_all(tmp_path: Path) -> None:
    """Everything that the lines allow is drawn and linked; the rest is named with what it needs.

    Every pixel is opaque and the corners are white, so that a dark page changes nothing.
    """
    shown = draw_all(results(*comparison(1)), tmp_path / "images", "png", tmp_path / "page.md")
    files = {file.stem for file in (tmp_path / "images").iterdir()}
    assert {"concurrency", "rate", "scaling", "cpu-W3", "distributions-W3"} <= files
    for file in (tmp_path / "images").iterdir():
        pixels = imread(file)
        assert pixels[:, :, 3].min() == 1.0
        assert pixels[0, 0].min() == 1.0
    assert set(re.findall(r"\]\(images/(.*)\.png\)", "\n".join(shown))) == files
    assert shown[-1] == "Left out for want of data: distributions-W4 (needs quantiles at W4)."


def test_nothing(tmp_path: Path) -> None:
    """No data: no plot, an older one of the same name goes, and all are named."""
    old = tmp_path / "concurrency.svg"
    old.write_text("old")
    [left_out] = draw_all(results(), tmp_path, "svg", tmp_path / "page.md")
    assert not old.exists()
    assert all(plot.name in left_out for plot in plots(results()))


def test_concurrency() -> None:
    """Medians of the repeats at each level; only levels that an arm has."""
    levels = [(16, "W1-C16", 10.0), (64, "W1-C64", 40.0), (1024, "C1024", 50.0)]
    ours = [line(workload=name, repeat=n, requests_s=rate + n) for _, name, rate in levels for n in range(3)]
    made = concurrency.draw(results(*ours, line(arms.LIMIT, requests_s=44.0)))
    assert made
    throughput = curves(made.axes[0])
    assert throughput[arms.NATS] == [(16, 11), (64, 41), (1024, 51)]
    assert throughput[arms.LIMIT] == [(64, 44)]
    assert concurrency.draw(results(line())) is None


def test_distributions() -> None:
    """The median of each quantile; an arm without them is left out."""
    lines = [
        line(repeat=n, quantiles={"ttft_ms": quantiles(p), "itl_ms": quantiles(9)}) for n, p in enumerate((1, 9, 5))
    ]
    made = distributions.draw(results(*lines, line(arms.LIMIT, quantiles={"ttft_ms": [], "itl_ms": []})), C64)
    assert made
    ttft = curves(made.axes[0])
    assert list(ttft) == [arms.NATS]
    assert ttft[arms.NATS][50] == pytest.approx((5.0, 50.0))


def test_rates() -> None:
    """Over the rate that was offered."""
    made = rates.draw(results(line(workload="W1-20s"), line(workload="W1-5.5s"), line(workload="W1-C64")))
    assert made
    assert [x for x, _ in curves(made.axes[0])[arms.NATS]] == [5.5, 20.0]
    assert rates.draw(results(line(workload="W1-20s"))) is None


def test_cpu() -> None:
    """The parts of a bar add up to its figure; what cannot be seen gets no place in the legend."""
    watched = [
        process("engine-core-0", "engine", 5.12),
        process("edge-0", "server", 2.56),
        process("idle-0", "server", 0),
    ]
    made = cpu.draw(results(line(processes=watched)), C64)
    assert made
    [axes] = made.axes
    assert [round(cast("Rectangle", patch).get_width()) for patch in axes.patches] == [50, 25]
    assert "75" in [text.get_text() for text in axes.texts]
    assert axes.get_legend_handles_labels()[1] == ["engine-core", "edge"]
    assert cpu.draw(results(line(processes=[])), C64) is None


def test_scaling() -> None:
    """Multiples of the run on one GPU in the same repeat; without that run there is nothing to multiply."""
    steps = [
        line(workload=f"X-gpus{gpus}", repeat=repeat, requests_s=rate * (1 + repeat))
        for gpus, rate in ((1, 10.0), (2, 19.0), (4, 36.0))
        for repeat in range(2)
    ]
    made = scaling.draw(results(*steps))
    assert made
    assert curves(made.axes[0])[arms.NATS] == [(1, 1), (2, pytest.approx(1.9)), (4, pytest.approx(3.6))]
    assert scaling.draw(results(*steps[2:])) is None


@pytest.mark.parametrize(("low", "high", "ends"), [(3, 70, (2, 100)), (1, 10, (1, 10)), (0.07, 0.3, (0.05, 0.5))])
def test_rounded(low: float, high: float, ends: tuple[float, float]) -> None:
    """A logarithmic axis ends on numbers that are written at it."""
    assert style.rounded(low, high) == pytest.approx(ends)


def test_looks_differ() -> None:
    """No two arms share colour, or marker and dashes: each can be told without colours too."""
    looks = [style.look(arm) for arm in arms.ORDER]
    assert len({look.color for look in looks}) == len(looks)
    assert len({(look.marker, look.dashes) for look in looks}) == len(looks)
    assert style.look("unknown").color == style.GREY


def test_case_of_other_profile() -> None:
    """Concurrency and rate are shown for one GPU profile: others are another GPU."""
    assert concurrency.draw(results(line(), line(workload="W1-C256", profile="h100-70b"))) is None
    assert Case("W1-C256", "h100-70b") in results(line(workload="W1-C256", profile="h100-70b")).cases


def test_bands() -> None:
    """Bands are spoken of where there is more than one repeat, and so something to see."""
    for repeats in (1, 2):
        concurrency_plot = next(plot for plot in plots(results(*comparison(repeats))) if plot.name == "concurrency")
        assert ("Bands" in concurrency_plot.title) == (repeats > 1)


def test_every_arm_is_marked() -> None:
    """A single point can be seen, whose ever it is."""
    assert all(style.look(arm).marker for arm in arms.ORDER)
