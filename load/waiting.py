"""`python -m load.waiting`: the memory that a waiting request takes, in all processes together.

For each size of prompt it starts a pipeline whose engine hangs, so that nothing is answered, fills the queues, and
reads the memory of all its processes before and after. KB are 1,024 bytes.
"""

import argparse
import asyncio
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import psutil

from broker.client import Headrace
from broker.connection import BrokerError
from broker.depths import depths
from broker.subjects import REQUESTS, TICKETS
from load.comparison.driving import now
from load.comparison.machine import machine, versions
from load.comparison.results import Key, Result, ResultsFile
from load.ending import ending
from load.generator.option_values import number
from load.interruption import ends_when_asked
from load.memory import KIB_PER_MIB, read
from load.pipeline import Pipeline
from load.reporting.arms import NATS
from load.reporting.metrics import ENOUGH_WAITING
from load.reporting.results import WAITING
from load.reporting.targets import SIMULATED
from stages.inference.simulated_model import WORDS

KIB = 1024
MIB = 1024 * KIB

PROMPT_SHARE = 3
"""So many times the bytes of its prompt are not counted: the request itself, its token ids, one copy on the way."""

HANG = 0
"""The token that makes the simulated engine hang: a zero byte, which is in no text."""

SETTINGS = ("inference.slots=1", f"inference.simulated_hang={HANG}", "inference.step_limit_s=600", "process.grace_s=1")

FEW = f"with fewer than {ENOUGH_WAITING:,}, what processes take once is spread over few requests"

WARM_UP = 64
STORED_S = 120.0


def resident(root: int) -> float:
    """MiB of a process and of all that it started."""
    processes = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    return sum(reading.now for process in processes if (reading := read(process.pid)))


async def waiting_kb(pipeline: Pipeline, size: int, count: int, settle_s: float) -> float:
    """KB that each of `count` waiting requests takes in all processes, beyond its share for a prompt of `size` bytes.

    Raises `RuntimeError` where one of them does not wait.
    """
    async with Headrace(pipeline.url) as client:
        for number in range(WARM_UP):
            await _ask(client, messages=_messages(size, number))
        client.cancels_when_left = False  # at the end the pipeline goes, with all that waits
        stuck = asyncio.create_task(_ask(client, prompt=[HANG]))
        async with ending(stuck):
            await _until_stored(client, [stuck])
            await asyncio.sleep(settle_s)
            before = resident(pipeline.process.pid)
            asked = [asyncio.create_task(_ask(client, messages=_messages(size, WARM_UP + n))) for n in range(count)]
            async with ending(stuck, *asked):
                await _until_stored(client, [stuck, *asked])
                await asyncio.sleep(settle_s)
                return beyond_prompt(resident(pipeline.process.pid) - before, size, count)


def beyond_prompt(grown_mib: float, size: int, count: int) -> float:
    """KB a request of what `count` of them made processes grow."""
    return grown_mib * KIB_PER_MIB / count - PROMPT_SHARE * size / KIB


async def _ask(client: Headrace, **what: Any) -> None:
    async for _ in client.stream(max_tokens=1, **what):
        pass


def _messages(size: int, number: int) -> list[dict[str, str]]:
    """A prompt of so many bytes, for each number another. Its words are tokens, as most words of a text are."""
    text = "".join(f" {word}" for word in Random(number).choices(WORDS, k=size))
    return [{"role": "user", "content": text[:size]}]


async def _until_stored(client: Headrace, asked: Sequence["asyncio.Task[None]"]) -> None:
    """Until all of them wait, as requests or as tickets."""
    give_up_at = time.monotonic() + STORED_S
    while True:
        streams = (await depths(client.connection)).streams
        stored = sum(streams[name].messages for name in (REQUESTS, TICKETS))
        if ended := [task for task in asked if task.done()]:
            raise RuntimeError(f"{len(ended)} requests did not wait: {ended[0].exception()!r}")
        if stored == len(asked):
            return
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"{stored} of {len(asked)} requests wait after {STORED_S:.0f} s")
        await asyncio.sleep(0.2)


def measure(sizes: Sequence[int], count: int, settle_s: float) -> Result:
    """The figures of one repeat, in the form of a result. Nothing is served in it."""
    begin = time.time()
    found: dict[str, float] = {}
    for size in sizes:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-waiting-") as folder,
            Pipeline(Path(folder), _arguments(count)) as pipeline,
        ):
            found[str(size)] = round(asyncio.run(waiting_kb(pipeline, size, count, settle_s)), 3)
    end = time.time()
    served = {"requests": 0, "requests_s": 0.0, "output_tokens_s": 0.0}
    window = {"begin": begin, "end": end, "s": end - begin}
    return {"loop": "none", "window": window, **served, "waiting": count, "waiting_kb": found}


def _arguments(count: int) -> list[str]:
    """Of `headrace up`, with room for all of them and the warm-up."""
    settings = (*SETTINGS, f"topology.requests_per_subject={count + WARM_UP}")
    return ["--engine", "simulated", *(word for setting in settings for word in ("--set", setting))]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status. A repeat that is in the file of results already is not measured again."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    results = ResultsFile(chosen.results) if chosen.results else None
    try:
        done = results.done() if results else set[Key]()
    except (ValueError, OSError) as error:
        parser.error(f"argument --results: {error}")
    if chosen.requests < ENOUGH_WAITING:
        print(f"hint: {FEW}", file=sys.stderr)
    try:
        with ends_when_asked("load.waiting"):
            _measure_missing(chosen, results, done)
    except (RuntimeError, BrokerError, OSError) as error:
        print(f"load.waiting: {error}", file=sys.stderr)
        return 1
    return 0


def _measure_missing(chosen: argparse.Namespace, results: ResultsFile | None, done: set[Key]) -> None:
    origin = {"machine": machine(), "versions": versions(), "command": _command(chosen)}
    for repeat in range(1, chosen.repeats + 1):
        key = Key(NATS, WAITING, SIMULATED, repeat)
        if key in done:
            continue
        at = now()
        figures = measure(chosen.sizes, chosen.requests, chosen.settle)
        told = ", ".join(f"{size} bytes: {kb:.2f} KB" for size, kb in figures["waiting_kb"].items())
        print(f"repeat {repeat}, beyond {PROMPT_SHARE} x the prompt: {told}", flush=True)
        if results:
            results.append({**asdict(key), "at": at, **origin, **figures})


def _command(chosen: argparse.Namespace) -> str:
    """What makes the same results again, without the folders of this machine."""
    words = ["python", "-m", "load.waiting", "--sizes", *map(str, chosen.sizes), "--requests", str(chosen.requests)]
    words += ["--settle", f"{chosen.settle:g}", "--repeats", str(chosen.repeats)]
    return shlex.join([*words, *(["--results", chosen.results.name] if chosen.results else [])])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m load.waiting", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--results", type=Path, metavar="FILE", help="of load.compare; a line for each repeat is appended")
    add(
        "--sizes",
        type=number(int, 1, MIB),
        nargs="+",
        default=[1024, 4096, 16384],
        metavar="BYTES",
        help="of prompts (%(default)s)",
    )
    add(
        "--requests",
        type=number(int, 1, 1_000_000),
        default=4000,
        metavar="N",
        help=f"that wait between the readings (%(default)s); {FEW}",
    )
    add("--repeats", type=number(int, 1, 1000), default=3, metavar="N", help="(%(default)s)")
    add(
        "--settle",
        type=number(float, 0, 3600),
        default=15.0,
        metavar="S",
        help="seconds of rest before each reading (%(default)g)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
