"""`python -m load.latency`: what the pipeline adds to a request, hop by hop, with an engine that takes no time.

Starts one process of every stage with the simulated engine (step time 0), sends requests one after the other, and
prints milliseconds: from the client's publish to its first token and to its end, and for each stage what a request
waited there and was worked on. `--concurrency` sends that many at once.
"""

import argparse
import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from broker.chunk import Chunk
from broker.client import Headrace
from load.generator.option_values import number
from load.interruption import ends_when_asked
from load.percentiles import summary
from load.pipeline import Pipeline

TARGET_MS = 8.0
"""Publish to first token at the client, p50."""

WARM_UP = 30


@dataclass
class Readings:
    """Milliseconds, one entry a request; `stages` by the name of the hop."""

    first: list[float] = field(default_factory=list[float])
    end: list[float] = field(default_factory=list[float])
    stages: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, first_s: float, end_s: float, last: Chunk) -> None:
        """One answer."""
        self.first.append(first_s * 1000)
        self.end.append(end_s * 1000)
        if last.costs is None:
            return
        for stage in ("preprocess", "schedule", "inference", "postprocess"):
            cost = getattr(last.costs, stage)
            self.stages.setdefault(f"{stage} waits", []).append(cost.queued * 1000)
            self.stages.setdefault(f"{stage} works", []).append(cost.service * 1000)

    def rows(self) -> dict[str, dict[str, float]]:
        """Percentiles by row."""
        rows = {"publish to first token": self.first, "publish to end": self.end, **self.stages}
        return {name: summary(values) for name, values in rows.items()}


async def measure(url: str, requests: int, concurrency: int, tokens: int) -> Readings:
    """Sends `requests` requests, `concurrency` at once, after a warm-up."""
    readings = Readings()
    async with Headrace(url) as client:
        for number in range(WARM_UP):
            await _one(client, number, tokens, Readings())
        gate = asyncio.Semaphore(concurrency)

        async def gated(number: int) -> None:
            async with gate:
                await _one(client, number, tokens, readings)

        await asyncio.gather(*(gated(number) for number in range(requests)))
    return readings


async def _one(client: Headrace, number: int, tokens: int, readings: Readings) -> None:
    messages = [{"role": "user", "content": f"Question {number}: what turns the wheel?"}]
    began = time.perf_counter()
    first = 0.0
    last: Chunk | None = None
    async for chunk in client.stream(messages=messages, max_tokens=tokens):
        first = first or time.perf_counter() - began
        last = chunk
    if last is not None:
        readings.add(first, time.perf_counter() - began, last)


def table(rows: dict[str, dict[str, float]]) -> Table:
    """The readings for a person."""
    shown = Table(title="Added latency, ms", title_justify="left")
    shown.add_column("hop")
    for name in next(iter(rows.values())):
        shown.add_column(name, justify="right")
    for name, row in rows.items():
        shown.add_row(name, *(f"{value:.2f}" for value in row.values()))
    return shown


@contextlib.contextmanager
def _running(url: str) -> Generator[str]:
    """The URL of the pipeline that is named, or of one of its own."""
    if url:
        yield url
        return
    with tempfile.TemporaryDirectory() as folder, Pipeline(Path(folder), ["--engine", "simulated"]) as own:
        yield own.url


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m load.latency", description=__doc__)
    parser.add_argument("--requests", type=number(int, 1, 1_000_000), default=300)
    parser.add_argument("--concurrency", type=number(int, 1, 100_000), default=1)
    parser.add_argument("--tokens", type=number(int, 1, 1_000_000), default=8)
    parser.add_argument("--url", default="", help="a running pipeline instead of one of its own")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    with ends_when_asked("load.latency"), _running(chosen.url) as url:
        rows = asyncio.run(measure(url, chosen.requests, chosen.concurrency, chosen.tokens)).rows()
    if chosen.json:
        print(json.dumps({"requests": chosen.requests, "concurrency": chosen.concurrency, "ms": rows}))
        return
    console = Console()
    console.print(table(rows))
    console.print(f"target: publish to first token p50 <= {TARGET_MS} ms")


if __name__ == "__main__":
    main()
