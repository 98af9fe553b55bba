"""How every plot looks: one colour, marker and line for each arm, units on the axes, a legend that covers nothing."""

# pyright: reportUnknownMemberType=false
# (matplotlib's own stubs leave `**kwargs` without a type)

import math
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from load.reporting.arms import HTTP, LIMIT, NATS

BLUE, SKY, GREEN, ORANGE, VERMILLION, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"
"""Okabe and Ito's colours; their yellow is too pale for lines on white."""
BLACK, GREY, BROWN, CHARCOAL = "#000000", "#8A8A8A", "#7A4B1E", "#444444"
DARK = (BLUE, BROWN, CHARCOAL)
"""What black figures cannot be read on."""

LONG = 300
"""From this quotient of its ends on a logarithmic axis has numbers at its decades only."""

RC: dict[Any, Any] = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": "#444444",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E2E2E2",
    "font.size": 9,
    "legend.frameon": False,
    "svg.hashsalt": "headrace",  # else every run writes other names into the same picture
}


@dataclass(frozen=True)
class Look:
    """Of one arm's line; the colours differ for the colour-blind, markers and dashes for everybody."""

    color: str
    marker: str
    dashes: str = "-"
    width: float = 1.4


LOOKS = {
    LIMIT: Look(BLACK, "h", "--"),
    NATS: Look(BLUE, "o", width=2.2),
    HTTP: Look(SKY, "s", width=2.2),
    "vllm-serve": Look(VERMILLION, "^"),
    "vllm-serve-api2": Look(ORANGE, "v"),
    "vllm-serve-interval8": Look(BROWN, "D", ":"),
    "smg-python": Look(PURPLE, "P", "-."),
    "smg-rust": Look(GREEN, "X", "-."),
}


def look(arm: str) -> Look:
    """Of any arm; unknown ones are grey."""
    return LOOKS.get(arm, Look(GREY, "*"))


def line(axes: Axes, arm: str, x: list[float], y: list[float], *, marked: bool = True) -> None:
    """One arm."""
    style = look(arm)
    marker = style.marker if marked else ""
    axes.plot(
        x, y, color=style.color, marker=marker, linestyle=style.dashes, linewidth=style.width, markersize=5, label=arm
    )


def band(axes: Axes, arm: str, x: list[float], low: list[float], high: list[float]) -> None:
    """From the least to the largest repeat."""
    axes.fill_between(x, low, high, color=look(arm).color, alpha=0.15, linewidth=0)


def title(axes: Axes, text: str) -> None:
    """Above a panel, at its left."""
    axes.set_title(text, loc="left", fontsize=10)


def milliseconds(axis: Axis, low: float, high: float) -> tuple[float, float]:
    """Plain numbers on a logarithmic axis, 10, 20, 50, 100, where there is room for so many. Returns its ends."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < LONG else (1,)))
    axis.set_major_formatter(FuncFormatter(_plain))
    axis.set_minor_locator(NullLocator())
    return rounded(low, high)


def rounded(low: float, high: float) -> tuple[float, float]:
    """Ends of a logarithmic axis that carry a number: the next 1, 2 or 5 of a decade outwards. Both above 0."""
    steps = [digit * 10.0**power for power in range(math.floor(math.log10(low)), 9) for digit in (1, 2, 5)]
    return max(step for step in steps if step <= low * 1.001), min(step for step in steps if step >= high * 0.999)


def _plain(value: float, _position: int | None) -> str:
    return f"{value:g}"


def figure(columns: int, width: float = 8.6, height: float = 3.9) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side."""
    with mpl.rc_context(RC):
        made = Figure(figsize=(width, height), layout="constrained")
        panels = [made.add_subplot(1, columns, column + 1) for column in range(columns)]
    return made, panels


def legend(made: Figure, axes: Axes, columns: int = 4) -> None:
    """Below all panels, from the lines of one of them."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        made.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def colors(names: list[str]) -> dict[str, str]:
    """A colour for each of some names, always the same for the same list."""
    palette = cycle((BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE, "#F0E442", BROWN))
    return dict(zip(names, palette, strict=False))


def save(made: Figure, path: Path) -> None:
    """As SVG or PNG, by the name. The same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with mpl.rc_context(RC):
        made.savefig(path, dpi=110, metadata=metadata)
