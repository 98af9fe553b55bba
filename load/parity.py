"""`python -m load.parity`: whether the edge answers as vLLM's own server does.

Starts `vllm serve` with the bundled model, then `headrace up` with the same model and the same engine options, sends
both the fixed list of `load/parity_requests.py`, whole and streamed, and compares texts, reasons to finish, usage,
logprobs and statuses. Prints the differences as a table. The known ones stand in docs/parity.md, with their reasons.

Exit status: 0 when every difference is listed there or follows from a near tie, and none is listed that is none any
more; 1 otherwise; 2 for a wrong command line. With both servers to start it takes 10 to 20 minutes on two cores.
"""

import argparse
import dataclasses
import json
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from load.parity_ask import Asked, Asker, read, write
from load.parity_compare import SHOWN, Difference, Known, compare, known_differences, outdated, unlisted
from load.parity_question import Question
from load.parity_requests import QUESTIONS
from load.pipeline import ROOT

SAME, DIFFERENT, USAGE, ENDED = 0, 1, 2, 143
PAGE = ROOT / "docs" / "parity.md"


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(
        prog="python -m load.parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--vllm", default="", help="URL of a `vllm serve` that runs; else one is started")
    found.add_argument("--headrace", default="", help="URL of an edge that runs; else `headrace up` is started")
    found.add_argument("--reference", type=Path, help="vLLM's answers: read from there if it exists, else kept there")
    found.add_argument("--only", action="append", default=[], help="only questions whose names begin so; several")
    found.add_argument("--at-once", type=int, default=4, help="questions at once (%(default)s)")
    found.add_argument("--json", type=Path, help="the differences go there")
    found.add_argument("--port", type=int, default=18430, help="of the servers that are started (%(default)s)")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    usage = parser()
    chosen = usage.parse_args(arguments)
    questions = [each for each in QUESTIONS if not chosen.only or each.name.startswith(tuple(chosen.only))]
    if not questions:
        usage.error(f"--only {', '.join(chosen.only)}: no question begins so")
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory(prefix="headrace-parity-") as folder:
        reference = _reference(chosen, questions, Path(folder))
        ours = _ask_headrace(chosen, questions, Path(folder))
    return _say({each.name: reference[each.name] for each in questions}, ours, chosen.json, whole=not chosen.only)


def _end(*_: object) -> None:
    """The servers end with it."""
    sys.exit(ENDED)


def _reference(chosen: argparse.Namespace, questions: list[Question], folder: Path) -> dict[str, Asked]:
    """vLLM's answers, from the file or from the server."""
    if chosen.reference and chosen.reference.exists():
        kept = read(chosen.reference)
        if missing := [each.name for each in questions if each.name not in kept]:
            raise SystemExit(f"{chosen.reference} has no answer to {', '.join(missing)}: remove it to ask again")
        return kept
    found = _ask_vllm(chosen, questions, folder)
    if chosen.reference:
        write(chosen.reference, found)
    return found


def _ask_vllm(chosen: argparse.Namespace, questions: list[Question], folder: Path) -> dict[str, Asked]:
    from load.parity_servers import vllm_serve

    if chosen.vllm:
        return _ask(chosen.vllm, questions, chosen.at_once, "vllm", margins=True)
    with vllm_serve(folder, chosen.port) as url:
        return _ask(url, questions, chosen.at_once, "vllm", margins=True)


def _ask_headrace(chosen: argparse.Namespace, questions: list[Question], folder: Path) -> dict[str, Asked]:
    from load.parity_servers import headrace_up

    if chosen.headrace:
        return _ask(chosen.headrace, questions, chosen.at_once, "headrace", margins=False)
    with headrace_up(folder, chosen.port + 1) as url:
        return _ask(url, questions, chosen.at_once, "headrace", margins=False)


def _ask(url: str, questions: list[Question], width: int, server: str, *, margins: bool) -> dict[str, Asked]:
    tell: Callable[[str], None] = lambda text: print(f"{server}: {text}", file=sys.stderr, flush=True)  # noqa: E731
    with Asker(url, width=width, margins=margins) as asker:
        return asker.all(questions, tell)


def _say(reference: Mapping[str, Asked], ours: Mapping[str, Asked], file: Path | None, *, whole: bool) -> int:
    """Prints what was found; the exit status."""
    known = known_differences(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else []
    differences = compare(reference, ours)
    new = unlisted(differences, known)
    gone = outdated(differences, known) if whole else []
    Console(width=200).print(_table(differences, new, known))
    ties = {each.question for each in differences if each.near_tie}
    print(
        f"{len(reference)} questions, {len(differences)} differences in {len({each.question for each in differences})}"
    )
    print(f"from near ties: {', '.join(sorted(ties)) or 'none'}")
    print(f"not listed in {PAGE.name}: {len(new)}; listed and none: {'; '.join(gone) or 'none'}")
    if file:
        said: list[dict[str, Any]] = [{**dataclasses.asdict(each), "listed": each not in new} for each in differences]
        file.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return DIFFERENT if new or gone else SAME


def _table(differences: list[Difference], new: list[Difference], known: list[Known]) -> Table:
    table = Table("question", "way", "what", "vLLM", "Headrace", "reason")
    reasons = {(each.question, what): each.reason for each in known for what in each.what}
    for each in differences:
        reason = each.near_tie or reasons.get((each.question, each.what), "")
        cells = (each.question, each.way, each.what, repr(each.reference), repr(each.ours), reason)
        shown = [cell.replace("[", r"\[")[:SHOWN] for cell in cells]
        table.add_row(*shown, style="bold red" if each in new else None)
    return table


if __name__ == "__main__":
    sys.exit(main())
