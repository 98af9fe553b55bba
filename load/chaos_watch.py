"""Faults one at a time: each watched from its moment until everything is as it was before."""

import asyncio
import time
from statistics import median

from broker import subjects
from load.chaos_faults import Fault, do
from load.chaos_findings import Disturbance, Findings
from load.chaos_http import HttpLoad
from load.chaos_load import TENANT, Load
from load.chaos_pipeline import EDGE, ChaosPipeline, until_whole
from load.ending import ending
from load.stalls import Name, Silence
from load.throughput import BACK_AT, Return

WHOLE_PATIENCE_S = 90.0
CALM_S = 2.5
CALM_LOOKS = 4
LOOK_S = 0.1


class FaultWatch:
    """Does faults and measures them, against the calm before each."""

    def __init__(self, pipeline: ChaosPipeline, load: Load, http: HttpLoad, findings: Findings) -> None:
        self._pipeline = pipeline
        self._load = load
        self._http = http
        self._findings = findings
        self._rates: list[float] = []
        self._counts: list[int] = []

    async def next(self, fault: Fault) -> str:
        """A calm, the fault, and the way back; what there was to see, in words."""
        calm = await self._calm_again(fault.pause_s)
        owned = await self._partitions_of(fault)
        there = self._http.at_edge(fault.victim) if fault.target == EDGE else frozenset[str]()
        self._pipeline.look_at_memory()
        began = time.monotonic()
        self._load.streams.open_window()
        rate = median(self._rates)
        back = Return(began, rate, round(median(self._counts)))
        async with ending(asyncio.create_task(do(fault, self._pipeline))) as doing:
            missing = await self._until_back(doing, back)
        silences = self._load.streams.close_window(time.monotonic())
        concerned, others = _concerned(fault, silences, owned, there, self._pipeline.topology.partitions)
        if doing.result():
            self._findings.done.append(fault)
        self._findings.disturbances.append(Disturbance(fault, concerned, others, back.seconds, back.low_s, missing))
        worst, before = max(concerned, default=0.0), max(calm, default=0.0)
        return (
            f"{fault.name}: {len(concerned)} streams silent for up to {worst:.2f} s (before it {before:.2f} s), "
            f"{rate:.0f} tokens/s again after {back.seconds:.1f} s (low for {back.low_s:.1f} s), "
            f"whole after {time.monotonic() - began:.1f} s" + (f", STILL MISSING {missing}" if missing else "")
        )

    async def _calm_again(self, more_s: float) -> list[float]:
        """Looks on while nothing is wrong, until the load flows as it mostly did, or long enough. The silences."""
        silences: list[float] = []
        for _ in range(CALM_LOOKS):
            rate, silences = await self._calm(more_s)
            self._findings.calm += silences
            self._rates.append(rate)
            self._counts.append(len(self._load.streams))
            if rate >= median(self._rates) * BACK_AT:
                break
        return silences

    async def _calm(self, more_s: float) -> tuple[float, list[float]]:
        """Tokens a second, and how long each stream was silent."""
        load, began, tokens = self._load, time.monotonic(), self._load.throughput.total
        load.streams.open_window()
        await asyncio.sleep(CALM_S + more_s)
        silences = load.streams.close_window(time.monotonic())
        rate = (load.throughput.total - tokens) / (time.monotonic() - began)
        return rate, [each.seconds for each in silences.values()]

    async def _until_back(self, doing: "asyncio.Task[bool]", back: Return) -> str:
        """Until the fault is over, all replicas are ready and tokens flow as before; what is missing in the end."""
        throughput = self._load.throughput
        whole: asyncio.Task[str] | None = None
        give_up_at = time.monotonic() + WHOLE_PATIENCE_S
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            back.look(now, throughput.rate(now), len(self._load.streams))
            if doing.done() and whole is None:
                doing.result()
                whole = asyncio.create_task(until_whole(self._pipeline, max(1.0, give_up_at - now)))
            if whole is not None and whole.done() and (back.back or now > give_up_at):
                return whole.result() or ("" if back.back else "throughput")

    async def _partitions_of(self, fault: Fault) -> frozenset[int]:
        """Those that the victim owns."""
        if fault.target != "postprocess":
            return frozenset()
        snapshot = await self._pipeline.snapshot()
        victim = self._pipeline.instance(self._pipeline.replicas[fault.target][fault.victim])
        found = snapshot.partitions if snapshot else []
        return frozenset(partition.number for partition in found if partition.owner == victim)


def _concerned(
    fault: Fault, silences: dict[Name, Silence], owned: frozenset[int], there: frozenset[str], partitions: int
) -> tuple[list[float], list[float]]:
    """The silences of those streams that the fault concerns, and of the others.

    A worker's streams are those that went on under another attempt, an edge's those that were read `there`, an owner's
    those of its partitions; everything else concerns all.
    """
    concerned: list[float] = []
    others: list[float] = []
    for name, silence in silences.items():
        mine = True
        if fault.target == "inference":
            mine = silence.resumed
        elif fault.target == EDGE:
            mine = name[0] in there
        elif fault.target == "postprocess":
            mine = subjects.partition_of(f"{TENANT}.{name[0]}", partitions) in owned
        (concerned if mine else others).append(silence.seconds)
    return concerned, others
