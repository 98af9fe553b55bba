"""`headrace autoscale` as a process, where what it looks at and what it drives come and go."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio

from broker.free_ports import free_port
from broker.server import EmbeddedServer
from broker.topology import Topology
from stages.commands.run_folder import RunFolder
from stages.control.server import controlled
from stages.process.child import ChildSpec
from stages.replicas import Replicas
from stages.supervisor import Supervisor

ROOT = Path(__file__).parents[3]
SLEEP = ("sh", "-c", "sleep 60")


class Running:
    """The process, and what it has logged."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    def events(self, name: str) -> list[Any]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    async def logged(self, name: str, times: int = 1) -> Any:
        """The last of so many events of that name."""
        async with asyncio.timeout(20):
            while len(self.events(name)) < times:
                assert self.process.returncode is None, self._log.read_text()
                await asyncio.sleep(0.05)
        return self.events(name)[-1]


@pytest_asyncio.fixture
async def port() -> int:
    return free_port()


@pytest_asyncio.fixture
async def autoscaler(tmp_path: Path, broker_url: str, topology: Topology, port: int) -> AsyncIterator[Running]:
    """It looks every second; on this machine no `headrace up` runs but what a test pretends."""
    own = {"XDG_CACHE_HOME": str(tmp_path), "HEADRACE_NATS_URL": broker_url, "HEADRACE_HEALTH_PORT": str(port)}
    log = tmp_path / "log"
    command = [sys.executable, "-m", "stages.cli", "autoscale", "--every", "1", "--stage", "inference=0..2"]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env={**os.environ, **own, "HEADRACE_LOG_FORMAT": "json"}, stdout=out, stderr=out
        )
    try:
        yield Running(process, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_one_look_without_a_broker_ends(tmp_path: Path, port: int) -> None:
    """Soon, and says why."""
    command = [
        "autoscale",
        "--once",
        "--dry-run",
        "--stage",
        "inference=0..2",
        "--nats-url",
        f"nats://127.0.0.1:{port}",
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stages.cli", *command),
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert "no broker at nats://" in err.decode()


async def test_one_look_without_compose_ends(tmp_path: Path, broker_url: str, topology: Topology) -> None:
    """And says that there is none here."""
    (tmp_path / "file").write_text("services: {inference: {}}")
    command = ["autoscale", "--once", "--stage", "inference=0..2", "--compose", str(tmp_path / "file")]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stages.cli", *command, "--nats-url", broker_url),
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)},
    )
    _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert "there is no Docker Compose here" in err.decode()


async def test_it_goes_on_when_what_it_drives_and_what_it_sees_are_back(
    autoscaler: Running, server: EmbeddedServer, tmp_path: Path, port: int
) -> None:
    """A line for each loss, not one a second; then it decides again. SIGTERM ends it, and changes nothing."""
    blind = await autoscaler.logged("autoscale.blind")
    assert blind["error"] == "no `headrace up` runs on this machine"
    folder = RunFolder({"XDG_CACHE_HOME": str(tmp_path)})
    supervisor = Supervisor([], lambda _: lambda _: None)
    supervisor.start()
    replicas = Replicas(supervisor, {"inference": ChildSpec("inference", 0, program=SLEEP)}, 1.0)
    try:
        async with controlled(replicas, folder.control()):
            await autoscaler.logged("autoscale.sees_again")
            decided = await autoscaler.logged("autoscale.decided")
            assert (decided["stage"], decided["from"], decided["to"]) == ("inference", 0, 1)
            assert 'autoscale_replicas{model="",stage="inference"} 1.0' in await metrics(port)
            os.kill(server.pid, signal.SIGKILL)
            await autoscaler.logged("autoscale.blind", 2)
            await server.restart()
            await autoscaler.logged("autoscale.sees_again", 2)
            autoscaler.process.terminate()
            assert await asyncio.wait_for(autoscaler.process.wait(), 10) == 0
            assert replicas.state().replicas == {"inference": 1}
    finally:
        await supervisor.stop(5)
        folder.remove()
    assert len(autoscaler.events("autoscale.blind")) == 2


async def metrics(port: int) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://127.0.0.1:{port}/metrics")).text
