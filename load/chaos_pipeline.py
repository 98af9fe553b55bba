"""The pipeline of a chaos run: a nats-server and the replicas of every stage, each at hand to be killed or cut off.

The processes are those of `headrace up` under its own supervisor, which runs here, so that each process and its
readiness are known, and the last replica of each stage can have its own way to the broker.
"""

import asyncio
import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from broker.connection import BrokerError, BrokerOptions, Connection
from broker.free_ports import free_port
from broker.server import EmbeddedServer
from broker.topology import initialise
from load.link import Link
from load.memory import Memory
from stages.commands.plan import UpOptions, plan
from stages.edge.settings import EdgeSettings
from stages.observing.pipeline import Observer, Snapshot
from stages.process.child import Child, ChildSpec
from stages.process.child_output import Write, to_folder
from stages.sections import present_stages
from stages.settings import variable
from stages.supervisor import Supervisor
from stages.topology_settings import TopologyLimits

STAGES = ("preprocess", "schedule", "inference", "postprocess")
BROKER = "broker"
EDGE = "edge"
PARTITIONS = 8
"""More than one a replica: owners change one by one."""

GRACE_S = 5.0
STOP_S = 20.0
LISTEN_S = 0.6
KEEP_ALIVE_S = 2.0
LOUD = ("error", "critical", "exception")


@dataclass
class Replica:
    """One replica of a stage, whichever process it is just now. `link` leads to the broker where it can be cut."""

    child: Child
    link: Link | None = None
    stopped: bool = False

    @property
    def name(self) -> str:
        return self.child.spec.name


class Listening:
    """The sink of all output: a file each, and what has to be known of it."""

    def __init__(self, folder: Path) -> None:
        self._to_folder = to_folder(folder)
        self.instances: dict[str, str] = {}
        self.errors: Counter[str] = Counter()

    def __call__(self, name: str) -> Write:
        write = self._to_folder(name)

        def take(line: str) -> None:
            write(line)
            if '"stage.ready"' in line or '"level":"' in line.replace(" ", ""):
                self._note(name, line)

        return take

    def _note(self, name: str, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return
        if event.get("event") == "stage.ready":
            self.instances[name] = str(event.get("instance", ""))
        if event.get("level") in LOUD:
            self.errors[f"{name.partition('.')[0]}: {event.get('event')}"] += 1


class ChaosPipeline:
    """`async with ChaosPipeline(…) as pipeline`: all of it runs, and everything is ended at the end."""

    def __init__(self, folder: Path, replicas: int, step_ms: float, *, links: bool, edges: bool) -> None:
        self._folder = folder
        self._count = replicas
        self._step_ms = step_ms
        self._linked = links
        self.listening = Listening(folder / "logs")
        self.memory = Memory()
        self.broker_lock = asyncio.Lock()
        self.replicas: dict[str, list[Replica]] = {stage: [] for stage in (*STAGES, *([EDGE] if edges else []))}
        self.edge_urls: list[str] = []

    async def __aenter__(self) -> "ChaosPipeline":
        self.server = await EmbeddedServer.start(self._folder / "nats")
        self._supervisor: Supervisor | None = None
        try:
            self.connection = await Connection.open(BrokerOptions(self.server.url, "headrace-chaos"), 10)
            self.topology = await initialise(self.connection, TopologyLimits(partitions=PARTITIONS).settings())
            await self._start_stages()
            self._observer = Observer(self.connection)
            await self._observer.start(10)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._observer.close()
            await self.connection.close()
        finally:
            await self._end()

    @property
    def url(self) -> str:
        return self.server.url

    def starts(self) -> dict[str, int]:
        """How often a process of each stage was started."""
        return {stage: sum(each.child.starts for each in found) for stage, found in self.replicas.items()}

    async def snapshot(self) -> Snapshot | None:
        """None while the broker is away."""
        try:
            return await self._observer.snapshot(LISTEN_S)
        except BrokerError:
            return None

    async def missing(self) -> str:
        """What keeps the pipeline from being whole, "" when nothing does. Takes a second."""
        everyone = [each for found in self.replicas.values() for each in found]
        if stopped := [each.name for each in everyone if each.stopped]:
            return f"stopped: {', '.join(stopped)}"
        if not_ready := [each.name for each in everyone if not (each.child.pid and each.child.ready.is_set())]:
            return f"not ready: {', '.join(not_ready)}"
        if cut := [each.name for each in everyone if each.link is not None and not each.link.connections]:
            return f"not connected: {', '.join(cut)}"
        snapshot = await self.snapshot()
        return "no broker" if snapshot is None else self._missing_in(snapshot)

    def _missing_in(self, snapshot: Snapshot) -> str:
        owners = {partition.owner for partition in snapshot.partitions}
        if owners != set(self._instances("postprocess")):
            return f"partitions are owned by {sorted(owners)}"
        workers = {worker.worker for worker in snapshot.workers if worker.state == "ready"}
        if len(workers) != len(self.replicas["inference"]):
            return f"workers: {sorted(workers)}"
        return ""

    def _instances(self, stage: str) -> list[str]:
        return [self.instance(each) for each in self.replicas[stage]]

    def instance(self, replica: Replica) -> str:
        """The id of the process that this replica is just now."""
        return self.listening.instances.get(replica.name, "")

    def look_at_memory(self, *, settled: bool = False) -> None:
        """Reads the memory of every process; `settled`: their start-up is over."""
        pids = [(stage, each.child.pid) for stage, found in self.replicas.items() for each in found]
        if self.server.running:
            pids.append((BROKER, self.server.pid))
        for group, pid in pids:
            if not pid:
                continue
            if settled:
                self.memory.settled(pid)
            self.memory.look(group, pid)

    async def _start_stages(self) -> None:
        counts = {stage: self._count if stage in self.replicas else 0 for stage in present_stages()}
        options = UpOptions(
            nats_url=self.server.url,
            engine="simulated",
            replicas=counts,
            overrides={
                "inference.simulated_step_ms": str(self._step_ms),
                "process.grace_s": str(GRACE_S),
                "edge.keep_alive_s": str(KEEP_ALIVE_S),
            },
        )
        own = {
            "HEADRACE_LOG_FORMAT": "json",
            "XDG_CACHE_HOME": str(self._folder / "cache"),
            "PYTHONWARNINGS": "default",
        }
        links = {stage: await self._new_link() for stage in self.replicas} if self._linked else {}
        specs: list[ChildSpec] = []
        for spec in plan(options, os.environ):
            link = links.get(spec.stage) if spec.number == self._count - 1 else None
            url = f"nats://127.0.0.1:{link.port}" if link else self.server.url
            specs.append(spec.with_more({**own, "HEADRACE_NATS_URL": url, **self._own_port(spec)}))
        self._supervisor = Supervisor(specs, self.listening)
        for child in self._supervisor.children:
            link = links.get(child.spec.stage) if child.spec.number == self._count - 1 else None
            self.replicas[child.spec.stage].append(Replica(child, link))
        self._supervisor.start()

    def _own_port(self, spec: ChildSpec) -> dict[str, str]:
        """Every edge has a port of its own: who goes to another edge must not come to the same one."""
        if spec.stage != EDGE:
            return {}
        port = free_port()
        self.edge_urls.append(f"http://127.0.0.1:{port}")
        return {variable(EdgeSettings, "port"): str(port)}

    async def _new_link(self) -> Link:
        host, _, port = self.server.url.removeprefix("nats://").partition(":")
        link = Link(host, int(port))
        await link.start()
        return link

    async def _end(self) -> None:
        """Whatever was stopped or cut is let go first, so that all can end in order."""
        for each in (replica for found in self.replicas.values() for replica in found):
            if each.link is not None:
                await each.link.restore()
        if self._supervisor is not None:
            await self._supervisor.stop(STOP_S)
        for each in (replica for found in self.replicas.values() for replica in found):
            if each.link is not None:
                await each.link.close()
        await self.server.stop()


async def until_whole(pipeline: ChaosPipeline, patience_s: float) -> str:
    """Waits until nothing is missing; what still is after `patience_s`."""
    give_up_at = time.monotonic() + patience_s
    while True:
        missing = await pipeline.missing()
        if not missing or time.monotonic() > give_up_at:
            return missing
        await asyncio.sleep(0.1)
