"""`python -m load.footprint`: seconds until each CPU stage is ready, and its memory, idle and after load.

Starts the simulated pipeline for a broker and a model, then one more process of each CPU stage, whose start it times;
sends requests, and reads the resident memory of that process. Lists what none of them may have loaded: torch, vllm.
"""

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from broker.free_ports import free_port
from load.generator.option_values import number
from load.interruption import ends_when_asked
from load.latency import measure
from load.pipeline import Pipeline, terminate

TARGETS_MB = {"preprocess": 350, "schedule": 200, "postprocess": 200}
TARGET_READY_S = 5.0
PATIENCE_S = 60.0
FORBIDDEN = ("/torch/", "/vllm/")
MIB = 1024 * 1024


@dataclass(frozen=True)
class Footprint:
    """One process: seconds from its start until `/ready`, MiB of resident memory, forbidden libraries in it."""

    stage: str
    ready_s: float
    idle_mb: float
    loaded_mb: float
    forbidden: list[str]


def footprint(pipeline: Pipeline, stage: str, requests: int, tokens: int) -> Footprint:
    """Starts, watches and stops one process of `stage`."""
    port = free_port()
    pipeline.environ["HEADRACE_HEALTH_PORT"] = str(port)
    began = time.monotonic()
    process = pipeline.start_stage(stage)
    try:
        _until_ready(process, port)
        ready_s = time.monotonic() - began
        watched = psutil.Process(process.pid)
        idle = watched.memory_info().rss / MIB
        asyncio.run(measure(pipeline.url, requests, 32, tokens))
        loaded = watched.memory_info().rss / MIB
        maps = {line.path for line in watched.memory_maps()}
    finally:
        terminate(process)
    found = sorted(path for path in maps if any(part in path for part in FORBIDDEN))
    return Footprint(stage, round(ready_s, 2), round(idle, 1), round(loaded, 1), found)


def _until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/ready", timeout=1).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.02)
    raise RuntimeError(f"not ready within {PATIENCE_S} s")


def table(found: Sequence[Footprint]) -> Table:
    """The readings for a person, beside the targets."""
    shown = Table(title="Footprint of the CPU stages", title_justify="left")
    for name in ("stage", "ready, s", "idle, MiB", "after load, MiB", "target, MiB", "torch or vllm"):
        shown.add_column(name, justify="left" if name == "stage" else "right")
    for one in found:
        limit = str(TARGETS_MB[one.stage])
        loaded = ", ".join(one.forbidden) or "no"
        shown.add_row(one.stage, f"{one.ready_s}", f"{one.idle_mb}", f"{one.loaded_mb}", limit, loaded)
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m load.footprint", description=__doc__)
    parser.add_argument("--requests", type=number(int, 1, 1_000_000), default=500)
    parser.add_argument("--tokens", type=number(int, 1, 1_000_000), default=64)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("up", nargs="*", help="arguments of `headrace up`; else the simulated engine")
    chosen = parser.parse_args(arguments)
    up = chosen.up or ["--engine", "simulated"]
    with (
        ends_when_asked("load.footprint"),
        tempfile.TemporaryDirectory() as folder,
        Pipeline(Path(folder), up, ready_s=180) as pipeline,
    ):
        found = [footprint(pipeline, stage, chosen.requests, chosen.tokens) for stage in TARGETS_MB]
    if chosen.json:
        print(json.dumps([asdict(one) for one in found]))
        return
    console = Console()
    console.print(table(found))
    console.print(f"target: ready in <= {TARGET_READY_S} s")


if __name__ == "__main__":
    main()
