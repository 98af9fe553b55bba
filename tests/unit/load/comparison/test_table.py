"""The table at the end: medians over repeats, ratios within them, and what is not in it."""

import io
from typing import Any

from rich.console import Console

from load.comparison.results import Key, Result
from load.comparison.table import failures, tables


def result(arm: str, repeat: int, requests_s: float, **more: Any) -> tuple[Key, Result]:
    processes = [
        {"name": "edge-0", "role": "server", "cpu_s": 3.0, "peak_mb": 100.0},
        {"name": "engine-core-0", "role": "engine", "cpu_s": 5.0, "peak_mb": 500.0},
        {"name": "generate-0", "role": "client", "cpu_s": 7.0, "peak_mb": 50.0},
    ]
    figures = {
        "format": 1,
        "arm": arm,
        "workload": "W3",
        "profile": "fast",
        "repeat": repeat,
        "loop": "closed",
        "window": {"begin": 0.0, "end": 10.0, "s": 10.0},
        "requests": 10,
        "requests_s": requests_s,
        "output_tokens_s": 100.0,
        "processes": processes,
    }
    return Key(arm, "W3", "fast", repeat), {**figures, **more}


def shown(latest: dict[Key, Result]) -> list[list[str]]:
    """The cells of all rows."""
    console = Console(file=io.StringIO(), width=250)
    for table in tables(latest):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_medians_and_ratios() -> None:
    """Each ratio is taken within its repeat: what slowed one repeat down slowed both arms."""
    runs = [("engine-only", 1, 10.0), ("engine-only", 2, 100.0), ("engine-only", 3, 20.0)]
    runs += [("headrace-nats", 1, 5.0), ("headrace-nats", 2, 90.0), ("headrace-nats", 3, 18.0)]
    limit, ours = shown(dict(result(*run) for run in runs))
    assert limit[:4] == ["engine-only", "20.0", "1.00", "-"]
    assert ours[:4] == ["headrace-nats", "18.0", "0.900", "-"]
    # 1,000 tokens in the window: 3 s of servers, 5 s of the core; of memory all that serves
    assert ours[-4:] == ["3,000", "5,000", "600", "3"]


def test_failed_runs_are_named() -> None:
    """A run that failed is in no table, whether it has figures or not, but in the list below."""
    latest = dict([result("vllm-serve", 1, 10.0), result("smg-rust", 1, 9.0, failed="2 x internal")])
    latest[Key("smg-python", "W3", "fast", 1)] = {"failed": "could not be installed"}
    assert [row[0] for row in shown(latest)] == ["vllm-serve"]
    assert sorted(failures(latest)) == [
        "smg-python, W3 (fast), repeat 1: could not be installed",
        "smg-rust, W3 (fast), repeat 1: 2 x internal",
    ]


def test_nothing_yet() -> None:
    """An empty file has no table."""
    assert list(tables({})) == []
