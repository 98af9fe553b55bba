"""All plots that results allow, drawn into a folder; those that they do not are named."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from load.reporting.plots import concurrency, cpu, distributions, rates, scaling, style
from load.reporting.results import Results

DISTRIBUTIONS = ("W1-20s", "W1-C64", "W1-C256", "W3", "W4")
PROCESSES = ("W1-C64", "W3")


@dataclass(frozen=True)
class Plot:
    """`draw` gives None where the results lack what is `wanted`."""

    name: str
    title: str
    wanted: str
    draw: Callable[[Results], Figure | None]


def plots(results: Results) -> Iterator[Plot]:
    """Every plot of a report."""
    bands = " Bands: all repeats." if concurrency.repeated(results) else ""
    yield Plot(
        "concurrency",
        f"Throughput and GPU busy over concurrency, 512 tokens in, 128 out.{bands}",
        "two workloads of W1-C16, W1-C64, W1-C256, C1, C1024",
        concurrency.draw,
    )
    for workload in DISTRIBUTIONS:
        case = next((case for case in results.cases if case.workload == workload), None)
        title = f"TTFT and ITL at {workload}. Curves further left are better; steep ones are even."
        draw = partial(distributions.draw, case=case) if case else _nothing
        yield Plot(f"distributions-{workload}", title, f"quantiles at {workload}", draw)
    yield Plot("rate", "TTFT over the offered rate.", "two rates of W1 in an open loop", rates.draw)
    for workload in PROCESSES:
        case = next((case for case in results.cases if case.workload == workload), None)
        title = f"CPU milliseconds for 1,000 output tokens by process at {workload}."
        draw = partial(cpu.draw, case=case) if case else _nothing
        yield Plot(f"cpu-{workload}", title, f"processes at {workload}", draw)
    yield Plot("scaling", "Throughput over the number of GPUs.", "one workload with 1 and more GPUs", scaling.draw)


def _nothing(_results: Results) -> None:
    return None


def draw_all(results: Results, folder: Path, suffix: Literal["svg", "png"], page: Path) -> Sequence[str]:
    """Markdown that shows each plot from `page`, and names those that were left out. Their old files are removed."""
    lines: list[str] = []
    left_out: list[str] = []
    for plot in plots(results):
        path = folder / f"{plot.name}.{suffix}"
        made = plot.draw(results)
        if made is None:
            path.unlink(missing_ok=True)
            left_out.append(f"{plot.name} (needs {plot.wanted})")
            continue
        style.save(made, path)
        link = Path(os.path.relpath(path.resolve(), page.resolve().parent)).as_posix()
        lines.append(f"![{plot.name}]({link})\n\n{plot.title}")
    return [*lines, f"Left out for want of data: {', '.join(left_out)}."] if left_out else lines
