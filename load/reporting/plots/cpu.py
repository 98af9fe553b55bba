"""CPU time for 1,000 output tokens by process, stacked, a bar for each arm."""

# pyright: reportUnknownMemberType=false
# (matplotlib's own stubs leave `**kwargs` without a type)

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from load.reporting.plots import style
from load.reporting.processes import Kind, kinds
from load.reporting.results import Case, Results

_WIDE = 0.05
"""Share of the axis from which on a part has room for its figure."""

_LEAST_MS = 0.1


def draw(results: Results, case: Case) -> Figure | None:
    """None where no process was watched."""
    found = {arm: _seen(kinds(results, case, arm)) for arm in results.arms(case)}
    bars = {arm: stack for arm, stack in found.items() if stack}
    if not bars:
        return None
    made, (axes,) = style.figure(1, height=1.6 + 0.36 * len(bars))
    longest = max(sum(kind.cpu_ms.median for kind in stack) for stack in bars.values())
    palette = _palette(bars)
    for row, stack in enumerate(bars.values()):
        _bar(axes, row, stack, palette, longest)
    _axes(axes, list(bars), longest)
    style.legend(made, axes, columns=5)
    return made


def _seen(stack: list[Kind]) -> list[Kind]:
    """Without what is too little to be seen; the tables have it."""
    return [kind for kind in stack if kind.cpu_ms.median >= _LEAST_MS]


def _palette(bars: dict[str, list[Kind]]) -> dict[str, str]:
    """Engine core grey, broker dark: they are no stage; every stage and server a colour."""
    names = [(kind.name, kind.role) for stack in bars.values() for kind in stack]
    servers = list(dict.fromkeys(name for name, role in names if role == "server"))
    return {
        **dict.fromkeys([name for name, role in names if role == "engine"], "#B8B8B8"),
        **dict.fromkeys([name for name, role in names if role == "broker"], style.CHARCOAL),
        **style.colors(servers),
    }


def _bar(axes: Axes, row: int, stack: list[Kind], palette: dict[str, str], longest: float) -> None:
    begin = 0.0
    drawn = set(axes.get_legend_handles_labels()[1])
    for kind in stack:
        width = kind.cpu_ms.median
        label = kind.name if kind.name not in drawn else None
        axes.barh(row, width, left=begin, height=0.7, color=palette[kind.name], edgecolor="white", label=label)
        if width > _WIDE * longest:
            ink = "white" if palette[kind.name] in style.DARK else "black"
            axes.text(begin + width / 2, row, f"{width:.0f}", ha="center", va="center", color=ink, fontsize=8)
        begin += width
    axes.text(begin + 0.01 * longest, row, f"{begin:.0f}", ha="left", va="center", fontweight="bold", fontsize=9)


def _axes(axes: Axes, names: list[str], longest: float) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.08 * longest)
    axes.set_xlabel("CPU ms for 1,000 output tokens (client not included)")
