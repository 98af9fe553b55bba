"""The stage as a process of its own: what it loads, how soon it is there, and what a stopped one may still do."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psutil
import pytest

from broker.connection import Inbound
from broker.delivery import delivery_of
from broker.server import EmbeddedServer
from broker.topology import TopologySettings
from schemas.journal import OpenReply
from tests.integration.schedule.conftest import World
from tests.integration.schedule.peers import never, until

RUN = "import sys; from stages.lifecycle import run_stage; sys.exit(run_stage('schedule', {}))"
HEAVY = ("torch", "vllm", "transformers", "tokenizers")


@dataclass
class Process:
    """A scheduler, ready; `ready_cpu_s` is how much CPU time that took: a busy machine does not count."""

    popen: subprocess.Popen[str]
    ready_cpu_s: float

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.popen.wait, 10)


@asynccontextmanager
async def scheduler_process(server: EmbeddedServer) -> AsyncGenerator[Process]:
    """Started, and killed at the end if it is still there."""
    environ = {**os.environ, "HEADRACE_NATS_URL": server.url, "HEADRACE_LOG_FORMAT": "json"}
    command = [sys.executable, "-c", RUN]
    popen = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220 — a millisecond
    assert popen.stderr is not None
    try:
        lines: list[str] = []
        while not lines or "stage.ready" not in lines[-1]:
            lines.append(await asyncio.wait_for(asyncio.to_thread(popen.stderr.readline), 20))
            assert lines[-1], f"it ended: {lines}"
        spent = psutil.Process(popen.pid).cpu_times()
        yield Process(popen, spent.user + spent.system)
    finally:
        popen.kill()
        popen.wait()
        popen.stderr.close()


async def test_small_soon_ready_and_clean_in_its_end(world: World, server: EmbeddedServer) -> None:
    """At most 200 MB, ready after 5 s of CPU, exit status 0 after SIGTERM; a grant on the way."""
    worker = await world.worker("w1", slots=4)
    async with scheduler_process(server) as process:
        assert process.ready_cpu_s <= 5
        sequence = await world.submit("a")
        await until(lambda: sequence in worker.held)
        assert psutil.Process(process.popen.pid).memory_info().rss <= 200_000_000
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0


def test_no_heavy_library_is_loaded() -> None:
    """A scheduler needs neither an engine nor a tokenizer."""
    code = f"import sys, stages.schedule.stage; print([name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


@pytest.mark.parametrize("answers_after_s", [0.0, 0.5])
async def test_a_scheduler_that_stood_still_judges_no_worker(
    world: World, server: EmbeddedServer, answers_after_s: float
) -> None:
    """Stopped for longer than a worker's silence, then continued: what it granted is not taken from a living worker.

    Nor where the worker's answer to the grant came while the scheduler stood still, longer than it waits for one.
    """
    owner = await world.owner()
    worker = await world.worker("w1", slots=4)
    worker.answers_after_s = answers_after_s
    async with scheduler_process(server) as process:
        sequences = [await world.submit(f"r{number}") for number in range(3)]
        await until(lambda: len(worker.held) == 3)
        process.signal(signal.SIGSTOP)
        await asyncio.sleep(3)
        process.signal(signal.SIGCONT)
        late = await world.submit("late")
        await until(lambda: late in worker.held)
        await never(lambda: bool(owner.opened_more_than_once), 1.5)
    assert sorted(worker.held) == [*sequences, late]


async def test_a_zombie_scheduler_forgets_what_it_held(world: World, server: EmbeddedServer) -> None:
    """Stopped for longer than the ack wait: what it held before and what came meanwhile is not granted when it is back.

    Alone as it is, its own open pull request gets the second delivery while it is stopped; only the third counts.
    """
    await world.make_streams(TopologySettings(partitions=3, ticket_ack_wait_s=3.0))
    owner = await world.owner()
    owner.answer = lambda _: OpenReply(0)
    async with scheduler_process(server) as zombie:
        sequences = [await world.submit(f"r{number}") for number in range(3)]
        await asyncio.sleep(0.5)
        zombie.signal(signal.SIGSTOP)
        await asyncio.sleep(4)
        worker = await world.worker("w1", slots=8)
        zombie.signal(signal.SIGCONT)
        await until(lambda: sorted(worker.held) == sequences, 8)
        await never(lambda: len(owner.opens) > 3, 1)
    assert {delivery_of(Inbound("", b"", entry.ack)).deliveries for _, entry in owner.opens} == {3}
    assert not any(entry.fresh for _, entry in owner.opens)
