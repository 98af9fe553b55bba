"""`python -m load.flood`: one tenant asks for many times what there is, another for a little.

A pipeline with the simulated engine serves the quiet tenant alone, then beside the flood: two arms on one
pipeline. Exit status 1 where the quiet one was refused or anything that was accepted did not end right.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from broker.client import Headrace
from broker.connection import BrokerError
from load.generator.option_values import number, output_file, parsed
from load.interruption import ends_when_asked
from load.percentiles import percentile
from load.pipeline import NotReady, Pipeline
from load.simulated_truth import prompt_of, true_ids, true_text
from schemas.faults import RequestFault

WORKERS, SLOTS, STEP_S, TOKENS = 2, 32, 0.1, 16
"""Tokens of an answer on average: half to one and a half times as many, so that slots do not end in lock-step."""

QUEUE, RUNNING = 32, 96
"""Requests that wait and tickets, those being answered too, for each tenant."""

LIMIT_S = WORKERS * SLOTS / (TOKENS * STEP_S)
"""Requests/s that the workers can answer at most."""

END_S = 60.0


@dataclass
class Told:
    """What became of one tenant's requests. `ttft` in seconds; `wrong` ended otherwise than they had to."""

    asked: int = 0
    answered: int = 0
    wrong: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    ttft: list[float] = field(default_factory=list[float])

    def shown(self) -> dict[str, Any]:
        """In plain values, times in ms."""
        times = {f"ttft_p{share}_ms": round(1e3 * percentile(self.ttft, share), 1) for share in (50, 99) if self.ttft}
        counts = {name: value for name, value in asdict(self).items() if name != "ttft"}
        return {**counts, "refused": dict(self.refused), **times}


@dataclass(frozen=True)
class Findings:
    """The quiet tenant alone and beside the flood, and the flood itself."""

    alone: Told
    beside: Told
    flood: Told

    @property
    def right(self) -> bool:
        """Whether the flood cost nobody an answer: its own surplus was refused as `busy`, nothing else was."""
        quiet = all(told.answered == told.asked for told in (self.alone, self.beside))
        accepted = self.flood.answered == self.flood.asked - self.flood.refused["busy"]
        return quiet and accepted and not self.alone.wrong + self.beside.wrong + self.flood.wrong


def pipeline_arguments() -> list[str]:
    """Of `headrace up`."""
    settings = (
        f"inference.slots={SLOTS}",
        f"inference.simulated_step_ms={1e3 * STEP_S:g}",
        f"topology.requests_per_subject={QUEUE}",
        f"topology.tickets_per_subject={RUNNING}",
    )
    sets = [word for text in settings for word in ("--set", text)]
    return ["--engine", "simulated", "--replicas", f"inference={WORKERS}", *sets]


async def measure(url: str, seconds: float, times: float, seed: int = 1) -> Findings:
    """Each arm for `seconds`; the flood asks for `times` what the workers can do, the quiet one for a fifth of it."""
    quiet_s, random = LIMIT_S / 5, Random(seed)
    async with Headrace(url, tenant="quiet") as quiet, Headrace(url, tenant="flood") as loud:
        alone, beside, flood = Told(), Told(), Told()
        await _arrivals(quiet_s, seconds, random, 0, lambda n: _ask(quiet, n, alone))
        await asyncio.gather(
            _arrivals(quiet_s, seconds, random, 10_000, lambda n: _ask(quiet, n, beside)),
            _arrivals(times * LIMIT_S, seconds, random, 20_000, lambda n: _ask(loud, n, flood)),
        )
    return Findings(alone, beside, flood)


async def _arrivals(
    rate: float, seconds: float, random: Random, first: int, ask: Callable[[int], Coroutine[Any, Any, None]]
) -> None:
    """Poisson arrivals of an open loop, and the end of all that came in."""
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()
    begin, at = loop.time(), 0.0
    while (at := at + random.expovariate(rate)) < seconds:
        await asyncio.sleep(begin + at - loop.time())
        tasks.append(asyncio.create_task(ask(first + len(tasks))))
    async with asyncio.timeout(END_S):
        await asyncio.gather(*tasks)


async def _ask(client: Headrace, name: int, told: Told) -> None:
    told.asked += 1
    prompt, tokens = prompt_of(name), Random(name).randint(TOKENS // 2, TOKENS * 3 // 2)
    text, first, begin = "", 0.0, time.monotonic()
    try:
        async for chunk in client.stream(prompt=prompt, max_tokens=tokens):
            first = first or time.monotonic() - begin
            text += chunk.text
    except RequestFault as fault:
        told.refused[fault.code] += 1
        return
    told.answered += 1
    told.ttft.append(first)
    told.wrong += text != true_text(true_ids(prompt, tokens))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    chosen = parser().parse_args(arguments)
    try:
        with (
            ends_when_asked("load.flood"),
            tempfile.TemporaryDirectory(prefix="headrace-flood-") as folder,
            Pipeline(Path(folder), pipeline_arguments()) as pipeline,
        ):
            found = asyncio.run(measure(pipeline.url, chosen.seconds, chosen.times, chosen.seed))
    except (BrokerError, NotReady, TimeoutError, OSError) as error:
        print(f"load.flood: {error!r}", file=sys.stderr)
        return 1
    _show(found)
    if chosen.json:
        save(found, chosen.json)
    return 0 if found.right else 1


def save(found: Findings, file: str) -> None:
    """The figures as JSON."""
    shown = {name: told.shown() for name, told in vars(found).items()}
    Path(file).write_text(json.dumps(shown, indent=1) + "\n")


def _show(found: Findings) -> None:
    table = Table("tenant", "asked", "answered", "refused", "wrong", "TTFT p50", "p99 ms")
    for name, told in (("quiet, alone", found.alone), ("quiet, beside it", found.beside), ("the flood", found.flood)):
        cells = told.shown()
        numbers = (told.asked, told.answered, dict(told.refused), told.wrong)
        table.add_row(name, *map(str, numbers), *(str(cells.get(f"ttft_p{share}_ms", "—")) for share in (50, 99)))
    Console().print(table)
    if found.alone.ttft and found.beside.ttft:
        ratios = [percentile(found.beside.ttft, share) / percentile(found.alone.ttft, share) for share in (50, 99)]
        Console().print(f"the quiet tenant's TTFT beside the flood: p50 {ratios[0]:.2f} x, p99 {ratios[1]:.2f} x")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m load.flood", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--seconds", type=number(float, 1, 600), default=20.0, help="of each arm (%(default)g)")
    made.add_argument("--times", type=number(float, 1, 50), default=5.0, help="what the workers can do (%(default)g)")
    made.add_argument("--seed", type=number(int, 0, 2**31), default=1, metavar="N", help="(%(default)s)")
    made.add_argument("--json", type=parsed(output_file), default="", metavar="FILE", help="where the figures go")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
