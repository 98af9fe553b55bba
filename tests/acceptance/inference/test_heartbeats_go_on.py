"""Heartbeats go on while the real engine prefills 4,000 tokens and both cores are busy with something else."""

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
from collections.abc import Generator

import pytest

from broker.connection import BrokerOptions, Connection
from broker.server import EmbeddedServer
from broker.topology import TopologySettings, initialise
from stages.inference.engine import StepOutput
from stages.inference.settings import InferenceSettings
from stages.inference.stage import InferenceStage
from stages.lifecycle import StageContext
from tests.acceptance.real_engine import RealEngine
from tests.integration.inference.serving import Pipeline, serving

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="session")]

PROMPT = [(17 * number) % 40_000 for number in range(4000)]


@contextlib.contextmanager
def busy_cores(count: int) -> Generator[None]:
    """So many processes that do nothing but compute."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def test_long_prefill_on_busy_cores(engine: RealEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No gap between heartbeats reaches the 2 s after which schedulers give a worker up."""
    seconds = _measured_steps(engine, monkeypatch)
    server = await EmbeddedServer.start()
    connection = await Connection.open(BrokerOptions(url=server.url), patience_s=10)
    topology = await initialise(connection, TopologySettings(partitions=2))
    pipeline = Pipeline(connection, topology, engine.model.slug)
    await pipeline.start()

    async def run(context: StageContext) -> None:
        await InferenceStage(context, InferenceSettings(), engine.model, engine.facts).serve()

    async with serving(server.url, topology, run) as running:
        with busy_cores(os.cpu_count() or 2):
            await pipeline.until(lambda: len(pipeline.heartbeats) > 1)
            await pipeline.grant(pipeline.item("long", prompt=PROMPT, max_tokens=4, deadline_ms=300_000))
            await pipeline.until(lambda: "t.long" in pipeline.finishes, seconds=200)
        assert await running.stop() is None
    await pipeline.stop()
    await connection.close()
    await server.stop()

    gaps = [after - before for before, after in itertools.pairwise(pipeline.heard_at)]
    steps = [one for one in seconds if one > 0.01]
    print(f"prefill of {sum(steps):.1f} s in {len(steps)} steps, median {statistics.median(steps):.2f} s,", end=" ")
    print(f"longest {max(steps):.2f} s; longest gap between heartbeats {max(gaps):.2f} s")
    assert len(pipeline.ids["t.long"]) == 4
    assert max(gaps) < 2.0


def _measured_steps(engine: RealEngine, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each step takes from now on."""
    seconds: list[float] = []
    original = engine.model.engine.next_step

    async def next_step() -> StepOutput:
        step = await original()
        seconds.append(step.seconds)
        return step

    monkeypatch.setattr(engine.model.engine, "next_step", next_step)
    return seconds
