"""One chaos run: the pipeline comes up, load flows, faults come one at a time or as a storm, everything is counted."""

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from broker import subjects
from broker.connection import BrokerError, BrokerOptions
from broker.replay import stored_results
from broker.results import ResultHistory
from load.chaos_check import check_stored
from load.chaos_faults import Fault, do
from load.chaos_findings import Findings, case_of
from load.chaos_http import HttpLoad
from load.chaos_http_requests import BROKEN
from load.chaos_load import AFTER_DEADLINE_S, TENANT, Asked, Load
from load.chaos_pipeline import ChaosPipeline, until_whole
from load.chaos_requests import NORMAL_DEADLINE_S
from load.chaos_watch import WHOLE_PATIENCE_S, FaultWatch
from load.ending import ending
from schemas.result import Result

START_PATIENCE_S = 90.0
WARM_UP_S = 4.0
STORM_PAUSE_S = (0.3, 3.0)
BROKEN_PATIENCE_S = 60.0
DRAIN_PATIENCE_S = NORMAL_DEADLINE_S + AFTER_DEADLINE_S + 10.0


@dataclass(frozen=True)
class ChaosOptions:
    """What to do, for how long (`duration_s`: no fault begins after that), and with how much load.

    `streams` go over NATS, `http_streams` over edges, which there are then.
    """

    faults: list[Fault]
    seed: int
    streams: int
    http_streams: int
    clients: int
    replicas: int
    step_ms: float
    duration_s: float
    storm: bool


class ChaosRun:
    """One run. Everything that it starts lies in `folder` and ends with it."""

    def __init__(self, options: ChaosOptions, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._findings = Findings()
        self._began = time.monotonic()

    async def run(self) -> Findings:
        """Raises `RuntimeError` where the pipeline does not come up."""
        options = self._options
        links = any(fault.signal == "CUT" for fault in options.faults)
        async with ChaosPipeline(
            self._folder, options.replicas, options.step_ms, links=links, edges=options.http_streams > 0
        ) as pipeline:
            if missing := await until_whole(pipeline, START_PATIENCE_S):
                raise RuntimeError(f"the pipeline did not come up: {missing}")
            self._tell("the pipeline is up")
            self._make_load(pipeline)
            memory, lag = asyncio.create_task(self._watch_memory(pipeline)), asyncio.create_task(self._watch_lag())
            async with ending(memory, lag):
                await self._disturb(pipeline)
                await self._count(pipeline)
        return self._findings

    def _make_load(self, pipeline: ChaosPipeline) -> None:
        options = self._options
        self._load = Load(BrokerOptions(pipeline.url), options.seed, options.streams, options.clients)
        self._http = HttpLoad(
            pipeline.edge_urls, options.seed, options.http_streams, self._load.streams, self._load.throughput
        )

    async def _run_load(self) -> None:
        """Until it is stopped, and all that was asked has ended."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._load.run())
            group.create_task(self._http.run())

    async def _disturb(self, pipeline: ChaosPipeline) -> None:
        """Load from before the first fault until after the last; then all that was accepted has to end."""
        loading = asyncio.create_task(self._run_load())
        faults = asyncio.create_task(self._do_all(pipeline))
        async with ending(loading, faults):
            await asyncio.wait({loading, faults}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():  # it runs until it is stopped: something in it is broken
                loading.result()
                raise RuntimeError("the load ended by itself")
            faults.result()
            self._load.stop()
            self._http.stop()
            self._tell("draining")
            done, _ = await asyncio.wait({loading}, timeout=DRAIN_PATIENCE_S)
            self._findings.drained = bool(done)

    async def _do_all(self, pipeline: ChaosPipeline) -> None:
        await asyncio.sleep(WARM_UP_S)
        pipeline.look_at_memory(settled=True)
        await (self._storm(pipeline) if self._options.storm else self._one_at_a_time(pipeline))

    async def _one_at_a_time(self, pipeline: ChaosPipeline) -> None:
        watch = FaultWatch(pipeline, self._load, self._http, self._findings)
        for fault in self._in_time():
            self._tell(f"{fault.number + 1}: {await watch.next(fault)}")

    def _in_time(self) -> Iterator[Fault]:
        """The faults, until the time is over."""
        for fault in self._options.faults:
            if time.monotonic() - self._began > self._options.duration_s:
                self._tell("out of time")
                return
            yield fault

    async def _storm(self, pipeline: ChaosPipeline) -> None:
        """Nobody waits for anybody: the next fault comes when it comes."""
        dice = random.Random(f"storm/{self._options.seed}")
        async with asyncio.TaskGroup() as group:
            for fault in self._in_time():
                self._tell(f"{fault.number + 1}: {fault.name}")
                pipeline.look_at_memory()
                group.create_task(self._do(fault, pipeline))
                await asyncio.sleep(dice.uniform(*STORM_PAUSE_S))
        if missing := await until_whole(pipeline, WHOLE_PATIENCE_S):
            self._tell(f"after the storm: {missing}")

    async def _do(self, fault: Fault, pipeline: ChaosPipeline) -> None:
        if await do(fault, pipeline):
            self._findings.done.append(fault)

    async def _count(self, pipeline: ChaosPipeline) -> None:
        """What is left to be read once nothing moves any more."""
        findings, load = self._findings, self._load
        findings.asked = [*load.asked, *self._http.asked]
        findings.refusals, findings.broken = dict(load.refusals + self._http.refusals), dict(self._http.broken)
        findings.tokens = load.throughput.total
        findings.seconds = time.monotonic() - self._began
        self._tell(f"reading the stored results of {len(findings.asked)} requests")
        for asked in findings.asked:
            if asked.accepted:
                await self._read_stored(pipeline, asked)
        pipeline.look_at_memory()
        findings.starts = pipeline.starts()
        findings.peak_mib, findings.growth_mib = pipeline.memory.peaks(), pipeline.memory.growth()
        findings.errors = dict(pipeline.listening.errors)

    async def _read_stored(self, pipeline: ChaosPipeline, asked: Asked) -> None:
        case = case_of(self._options.seed, asked)
        try:
            results = await self._stored(pipeline, asked)
            give_up_at = time.monotonic() + BROKEN_PATIENCE_S
            while asked.fault == BROKEN and _ends(results) < case.n and time.monotonic() < give_up_at:
                await asyncio.sleep(1)  # nobody has waited for its end
                results = await self._stored(pipeline, asked)
        except BrokerError as error:
            self._findings.unread += 1
            self._tell(f"{asked.id}: {error}")
            return
        self._findings.stored[asked.id] = check_stored(case, results)

    async def _stored(self, pipeline: ChaosPipeline, asked: Asked) -> list[Result]:
        partition = subjects.partition_of(f"{TENANT}.{asked.id}", pipeline.topology.partitions)
        if not asked.over_http:
            return await ResultHistory(pipeline.connection, partition).of(TENANT, asked.session, asked.id)
        subject = subjects.result(partition, TENANT, "*", asked.id)  # the session is that of the edge
        return await stored_results(pipeline.connection, partition, subject)

    async def _watch_memory(self, pipeline: ChaosPipeline) -> None:
        while True:
            await asyncio.sleep(1.0)
            pipeline.look_at_memory()

    async def _watch_lag(self) -> None:
        """How late this program itself is: no silence that it measures is more exact."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.05)
            self._findings.lag_s = max(self._findings.lag_s, time.monotonic() - began - 0.05)

    def _tell(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)


def _ends(results: list[Result]) -> int:
    """How many choices have ended."""
    return len({each.choice for each in results if each.terminal})


async def run_chaos(options: ChaosOptions, folder: Path) -> Findings:
    """As `ChaosRun.run`, bounded in time whatever hangs."""
    bound = START_PATIENCE_S + options.duration_s + 2 * WHOLE_PATIENCE_S + DRAIN_PATIENCE_S + 300.0
    async with asyncio.timeout(bound):
        return await ChaosRun(options, folder).run()
