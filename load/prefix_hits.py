"""`python -m load.prefix_hits`: whether chats go to the worker that has their prefix in its KV cache.

Starts a pipeline with vLLM workers (the bundled model, cores of its own each) and asks chats of several turns, whose
groups share long system prompts, a few at once. It prints what share of all prompt tokens was found in a cache, by
vLLM's own count, beside what one cache that has all of it would find; where the difference went; and how often the
scheduler's prediction was exact. `--by-load` runs the same again where schedulers know of no cache.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from broker.client import Headrace
from load.generator.option_values import number
from load.hits.figures import EXACT_TARGET, RATIO_TARGET, figures
from load.hits.turns import Asking, Plan, chats_of
from load.hits.workers import BY_CACHE, BY_LOAD, WorkerDied, engines, workers_ready
from load.interruption import ends_when_asked
from load.pipeline import NotReady, Pipeline
from load.workload.chat_format import NoChatFormat, chat_format
from schemas.faults import RequestFault

BLOCK_TOKENS = 32
WITHOUT_WORKERS = ("--engine", "vllm", "--replicas", "inference=0")
ROWS = (
    "requests",
    "prompt_tokens",
    "hit_share",
    "reference_share",
    "ratio",
    "ratio_in_time",
    "exact_share",
    "unknown",
    "missed",
    "ttft_ms",
    "workers",
    "seconds",
)


def measure(plan: Plan, workers: int, options: dict[str, str], most_s: float) -> dict[str, Any]:
    """The figures of one run, in a pipeline of its own. Raises `RuntimeError`, `RequestFault` in a group."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-hits-") as folder,
        Pipeline(Path(folder), [*WITHOUT_WORKERS]) as pipeline,
        engines(pipeline, workers, BLOCK_TOKENS, options) as started,
    ):
        found = asyncio.run(_asked(pipeline.url, plan, started, most_s))
    return {**found, "with_start_s": round(time.monotonic() - began, 1)}


async def _asked(url: str, plan: Plan, started: Sequence[Any], most_s: float) -> dict[str, Any]:
    chats = chats_of(plan, chat_format("", ""))
    async with Headrace(url) as client:
        _say(f"{len(started)} workers start")
        await workers_ready(client, started)
        asking = Asking(client, plan, lambda done: _say(f"{done} of {plan.chats * plan.turns} turns"))
        await asking.run(chats, most_s)
        if any(len(turn.prompt) != turn.prompt_tokens for turn in asking.turns):
            raise RuntimeError("the ids of a prompt are not those that the engine had")
        return figures(asking.turns, BLOCK_TOKENS)


def _say(text: str) -> None:
    """To somebody who watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def table(arms: dict[str, dict[str, Any]]) -> Table:
    """One column a run."""
    shown = Table(title="Prompt tokens found in KV caches", title_justify="left")
    shown.add_column("")
    for name in arms:
        shown.add_column(name, justify="right")
    for row in ROWS:
        shown.add_row(row.replace("_", " "), *(_cell(found[row]) for found in arms.values()))
    return shown


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{name or '?'}: {one}" for name, one in value.items())  # pyright: ignore[reportUnknownVariableType]
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status: 0 after a run, 1 where there was none, 130 and 143 when ended."""
    chosen = _parser().parse_args(arguments)
    plan = Plan(chosen.chats, chosen.groups, chosen.turns, answer_tokens=chosen.tokens, at_once=chosen.at_once)
    kinds = {"by cache": BY_CACHE, **({"by load": BY_LOAD} if chosen.by_load else {})}
    arms: dict[str, dict[str, Any]] = {}
    try:
        with ends_when_asked("load.prefix_hits"):
            for name, options in kinds.items():
                arms[name] = measure(plan, chosen.workers, options, chosen.seconds)
    except* (NotReady, WorkerDied, RequestFault, NoChatFormat, RuntimeError, OSError) as errors:
        print(f"load.prefix_hits: {errors.exceptions[0]}", file=sys.stderr)
    if len(arms) < len(kinds):
        return 1
    if chosen.json:
        print(json.dumps({"plan": vars(plan), "workers": chosen.workers, "arms": arms}))
        return 0
    console = Console(highlight=False)
    console.print(table(arms))
    console.print(f"targets: ratio >= {RATIO_TARGET}, exact share >= {EXACT_TARGET}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m load.prefix_hits", description=__doc__)
    add = parser.add_argument
    add("--chats", type=number(int, 1, 10_000), default=Plan.chats)
    add("--groups", type=number(int, 1, 10_000), default=Plan.groups, help="of chats that share a system prompt")
    add("--turns", type=number(int, 1, 100), default=Plan.turns)
    add("--tokens", type=number(int, 1, 1000), default=Plan.answer_tokens, help="of an answer")
    add("--at-once", type=number(int, 1, 1000), default=Plan.at_once, help="turns that are under way together")
    add("--workers", type=number(int, 1, 64), default=2)
    add("--seconds", type=number(float, 1, 3600), default=150.0, help="after which no further turn begins")
    add("--by-load", action="store_true", help="run once more with schedulers that know of no cache")
    add("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
