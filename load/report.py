"""`python -m load.report RESULTS.jsonl…`: tables, verdicts on targets and plots from what `load.compare` measured.

Prints the report as Markdown, or writes it between the markers of a page (`--markdown docs/performance.md`).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from load.generator.option_values import number
from load.reporting import markdown
from load.reporting.cost import Prices
from load.reporting.document import Options, document
from load.reporting.results import Failure, Results, Run, read
from load.reporting.targets import TARGETS
from load.reporting.verdicts import judge_all, tally


def parser() -> argparse.ArgumentParser:
    """The command line."""
    prices, defaults = Prices(), Options()
    made = argparse.ArgumentParser(prog="python -m load.report", description=__doc__)
    made.add_argument("results", nargs="+", type=Path, help="files of load.compare")
    price, speed = number(float, 0), number(float, 1)
    made.add_argument("--gpu-hour", type=price, default=prices.gpu_hour, help="dollars; %(default)s")
    made.add_argument("--cpu-core-hour", type=price, default=prices.cpu_core_hour, help="dollars; %(default)s")
    made.add_argument(
        "--gpu-tokens", type=speed, nargs="+", default=defaults.speeds, help="output tokens/s of GPUs to plan cores for"
    )
    made.add_argument("--plots", type=Path, help="draw plots into this folder")
    made.add_argument("--format", choices=("svg", "png"), default="svg", help="of the plots; %(default)s")
    made.add_argument("--markdown", type=Path, help=f"write between {markdown.BEGIN} and {markdown.END} of this page")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Status 2 for results that cannot be read, or a page without markers."""
    chosen = parser().parse_args(arguments)
    try:
        text, told = report(chosen)
        if chosen.markdown:
            markdown.write(chosen.markdown, text)
    except (OSError, ValueError) as wrong:
        sys.stderr.write(f"{wrong}\n")
        sys.exit(2)
    sys.stdout.write(told if chosen.markdown else text)


def report(chosen: argparse.Namespace) -> tuple[str, str]:
    """The report, and one line that sums it up. Raises `ValueError` for a file without a result."""
    results = Results(line for path in chosen.results for line in _some(path))
    options = Options(Prices(chosen.gpu_hour, chosen.cpu_core_hour), tuple(chosen.gpu_tokens))
    text = document(results, options, _plots(results, chosen))
    return text, f"{chosen.markdown}: {len(results.all())} runs; targets: {tally(judge_all(results, TARGETS))}\n"


def _some(path: Path) -> Sequence[tuple[str, Run | Failure]]:
    if not (found := list(read(path))):
        raise ValueError(f"{path}: there is no result in it")
    return found


def _plots(results: Results, chosen: argparse.Namespace) -> Sequence[str]:
    """Nothing without `--plots`: matplotlib comes with the extra `load` only."""
    if not chosen.plots:
        return []
    from load.reporting.plots.gallery import draw_all

    return draw_all(results, chosen.plots, chosen.format, chosen.markdown or Path("report.md"))


if __name__ == "__main__":
    main()
