"""`python -m load.postprocessing`: tokens a second and core of a postprocess process, with 256 answers at once.

Starts a nats-server and one process of the stage, and plays all others: tickets, and what a worker writes, one journal
message a step and partition. The tokens are divided by the CPU time of that process, which reads, decodes, splits, and
publishes a result for every token, unless it lags behind (`--step-ms 0`), when one result tells many tokens.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psutil
from rich.console import Console
from rich.table import Table

from broker.connection import BrokerOptions, Connection
from broker.server import EmbeddedServer
from broker.topology import TopologySettings, initialise
from load.interruption import ends_when_asked
from load.journal_feed import Case, JournalFeed
from load.pipeline import ROOT, terminate
from schemas.ticket import AnswerSpec
from stages.inference.bundled_model import bundled_model_path

TARGET = 25_000
"""Tokens a second and core."""

WARM_UP_STEPS = 10

PROSE = "The river turns the wheel, and the wheel turns the stone; das Mehl fällt, 水は流れる. "
CALL = '<tool_call>{"name": "look_up", "arguments": {"place": "the mill", "depth": 12}}</tool_call>'
IN_PARTS = f"<think>{PROSE * 3}</think>{PROSE}{CALL}"
STOPS = ["\n\nUser:", "<|end|>", "THE END", "###"]


@dataclass(frozen=True)
class Reading:
    """One case: its tokens, the results that told them, the CPU seconds of the stage's process, those on the clock."""

    name: str
    tokens: int
    results: int
    cpu_s: float
    wall_s: float

    @property
    def rate(self) -> float:
        """Tokens a second and core."""
        return self.tokens / self.cpu_s


def cases() -> list[Case]:
    """What is measured; each text is repeated until it has tokens enough."""
    return [
        Case("plain", PROSE, AnswerSpec()),
        Case("stop strings", PROSE, AnswerSpec(stop=STOPS)),
        Case("logprobs", PROSE, AnswerSpec(), alternatives=0),
        Case("logprobs with 5 alternatives", PROSE, AnswerSpec(), alternatives=5),
        Case("thoughts and tools", IN_PARTS, AnswerSpec(reasoning="qwen3", tools="hermes")),
        Case("thoughts, tools and stop strings", IN_PARTS, AnswerSpec(reasoning="qwen3", tools="hermes", stop=STOPS)),
    ]


async def measure(streams: int, steps: int, step_s: float) -> list[Reading]:
    """Every case, one after the other, on one process."""
    server = await EmbeddedServer.start()
    try:
        connection = await Connection.open(BrokerOptions(url=server.url, name="bench"))
        topology = await initialise(connection, TopologySettings(tickets_per_subject=16 * streams))
        feed = JournalFeed(connection, topology.partitions, streams)
        await feed.start((bundled_model_path() / "tokenizer.json").read_bytes())
        process = start_stage(server.url)
        try:
            return [await reading(feed, case, psutil.Process(process.pid), steps, step_s) for case in cases()]
        finally:
            await asyncio.to_thread(terminate, process)
            await connection.close()
    finally:
        await server.stop()


def start_stage(url: str) -> "subprocess.Popen[bytes]":
    """One postprocess process on this broker."""
    environ = {**os.environ, "HEADRACE_NATS_URL": url, "HEADRACE_LOG_LEVEL": "error"}
    return subprocess.Popen([sys.executable, "-m", "stages.cli", "stage", "postprocess"], cwd=ROOT, env=environ)


async def reading(feed: JournalFeed, case: Case, process: psutil.Process, steps: int, step_s: float) -> Reading:
    """One case, behind a short one that waits for the process to own its partitions and warms it up."""
    await feed.run(case, WARM_UP_STEPS, step_s)
    before = process.cpu_times()
    wall_s = await feed.run(case, steps, step_s)
    after = process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Reading(case.name, feed.streams * steps, feed.results, round(cpu_s, 2), round(wall_s, 2))


def table(readings: Sequence[Reading]) -> Table:
    """The readings for a person."""
    shown = Table(title="Postprocess: tokens a second and core", title_justify="left")
    for name in ("answers", "tokens", "tokens a result", "CPU, s", "clock, s", "tokens/s and core", "µs a token"):
        shown.add_column(name, justify="left" if name == "answers" else "right")
    for one in readings:
        merged = f"{one.tokens / one.results:.1f}"
        cost = f"{1e6 * one.cpu_s / one.tokens:.1f}"
        shown.add_row(one.name, f"{one.tokens:,}", merged, f"{one.cpu_s}", f"{one.wall_s}", f"{one.rate:,.0f}", cost)
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m load.postprocessing", description=__doc__)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=256, help="of each answer")
    parser.add_argument("--step-ms", type=float, default=25.0, help="between two tokens of an answer")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    with ends_when_asked("load.postprocessing"):
        found = asyncio.run(measure(chosen.streams, chosen.tokens, chosen.step_ms / 1000))
    if chosen.json:
        print(json.dumps([asdict(one) | {"rate": round(one.rate)} for one in found]))
        return
    console = Console()
    console.print(table(found))
    console.print(f"target: >= {TARGET:,} with plain answers")


if __name__ == "__main__":
    main()
