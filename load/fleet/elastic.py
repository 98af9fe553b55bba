"""A fleet that grows and shrinks in virtual time: replicas start, take from a queue, drain, and cost meanwhile.

The queue is the schedulers': first come, first served, to the replica with the least of prompts ahead of it, and none
that has two steps of prompts to compute takes more, as in `stages/schedule/seat.py`. What an autoscaler sees is what it
sees of a real pipeline, with the schedulers' own measure of what waits. News and grants take no time here.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from math import inf

from load.fleet.engine import Engine, Job, Shape
from stages.autoscaling.seen import UNKNOWN, Seen
from stages.schedule.backlog import BacklogMeter, HeldBack
from stages.schedule.seat import PREFILL_STEPS

RESERVE = 64
"""Tokens of an answer that count with its prompt, in the measure of what waits and in what has to fit."""

MEASURE_S = 0.25
"""So often what waits is measured when nothing else happens."""

Scaler = Callable[[Seen], int]
"""The replicas to ask for, by what is seen."""


@dataclass(frozen=True)
class Lifetimes:
    """Seconds: from asking for a replica until it takes work; between two looks of the autoscaler."""

    start_s: float = 60.0
    every_s: float = 2.0


@dataclass(eq=False, slots=True)
class Replica:
    """One engine, from when it is asked for (s) until it is gone; `computed` tokens of prompts so far."""

    engine: Engine
    asked_at: float
    ready: bool = False
    leaving: bool = False
    gone_at: float = inf
    version: int = 0
    computed: int = 0
    seen_computed: int = 0

    @property
    def open(self) -> bool:
        return self.ready and not self.leaving


class ElasticFleet:
    """Begins with `begin` replicas that are ready; `scaler` says from then on how many there should be."""

    def __init__(self, shape: Shape, begin: int, scaler: Scaler | None = None, times: Lifetimes | None = None) -> None:
        self._shape = shape
        self._scaler = scaler
        self._times = times or Lifetimes()
        self._replicas = [Replica(Engine(shape), 0.0, ready=True) for _ in range(begin)]
        self._gone: list[Replica] = []
        self._queue: deque[Job] = deque()
        self._queued_tokens = 0
        self._meter = BacklogMeter()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._looked_at = 0.0
        self.most = begin
        """Replicas asked for at any time."""

    def run(self, jobs: Iterable[Job], until: float) -> None:
        """All that arrive, until they are answered; the autoscaler looks until then, and at least until `until`."""
        self._next_arrival(iter(jobs))
        if self._scaler is not None:
            self._at(0.0, lambda now: self._look(now, until))
        self._at(MEASURE_S, lambda now: self._measure(now, until))
        while self._events:
            now, _, action = heapq.heappop(self._events)
            action(now)

    def replica_s(self, until: float) -> float:
        """Of all replicas together, from asking for each until it was gone."""
        return sum(max(min(one.gone_at, until) - one.asked_at, 0.0) for one in [*self._gone, *self._replicas])

    def _at(self, at: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at, next(self._order), action))

    def _next_arrival(self, jobs: Iterator[Job]) -> None:
        job = next(jobs, None)
        if job is not None:
            self._at(job.at, lambda now: self._arrived(job, jobs, now))

    def _arrived(self, job: Job, jobs: Iterator[Job], now: float) -> None:
        self._queue.append(job)
        self._queued_tokens += _tokens(job)
        self._next_arrival(jobs)
        self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        """As many as there is room for."""
        granted = 0
        while self._queue and (chosen := self._place(self._queue[0])) is not None:
            job = self._queue.popleft()
            granted += _tokens(job)
            chosen.engine.add(job, now)
            self._plan(chosen)
        self._queued_tokens -= granted
        self._meter.looked(now, waiting=len(self._queue), granted=granted, workers=self._count())

    def _place(self, job: Job) -> Replica | None:
        found = [one for one in self._replicas if one.open and self._takes(one.engine, job)]
        return min(found, key=lambda one: (one.engine.prefill_tokens, one.engine.running), default=None)

    def _takes(self, engine: Engine, job: Job) -> bool:
        running = engine.running
        if running >= self._shape.slots or engine.prefill_tokens >= PREFILL_STEPS * self._shape.step_tokens:
            return False
        return not running or _tokens(job) <= engine.kv_free

    def _plan(self, replica: Replica) -> None:
        replica.version += 1
        if replica.engine.at < inf:
            version = replica.version
            self._at(replica.engine.at, lambda at: self._step(replica, version, at))

    def _step(self, replica: Replica, version: int, now: float) -> None:
        if version != replica.version:
            return  # something was added meanwhile: its row ends earlier
        replica.engine.advance()
        replica.computed += sum(job.prompt - job.cached for job in replica.engine.begun)
        self._plan(replica)
        self._leave(replica, now)
        if self._queue:
            self._dispatch(now)

    def _measure(self, now: float, until: float) -> None:
        self._meter.looked(now, waiting=len(self._queue), granted=0, workers=self._count())
        if now < until or self._queue:
            self._at(now + MEASURE_S, lambda at: self._measure(at, until))

    def _look(self, now: float, until: float) -> None:
        assert self._scaler is not None
        self._resize(self._scaler(self._seen(now)), now)
        if now < until or self._queue:
            self._at(now + self._times.every_s, lambda at: self._look(at, until))

    def _count(self) -> int:
        return sum(one.open for one in self._replicas)

    def _seen(self, now: float) -> Seen:
        """As `stages/autoscaling/observing.py` makes it of heartbeats."""
        there = [one for one in self._replicas if not one.leaving]
        ready = [one for one in there if one.ready]
        passed, self._looked_at = now - self._looked_at, now
        busy = sum(self._share(one.engine) for one in ready) / len(ready) if ready else UNKNOWN
        computing = self._computing(ready, passed) if ready and passed else UNKNOWN
        backlog_s = self._meter.seconds(HeldBack(len(self._queue), self._queued_tokens), 0, 0.0)
        return Seen(now, len(there), len(ready), len(self._queue), backlog_s, busy, computing=computing)

    def _share(self, engine: Engine) -> float:
        kv = 1 - engine.kv_free / self._shape.kv_tokens if engine.running else 0.0
        return min(max(engine.running / self._shape.slots, kv), 1.0)

    def _computing(self, ready: Iterable[Replica], passed: float) -> float:
        token_s = self._shape.prefill_s + self._shape.base_s / self._shape.step_tokens
        shares: list[float] = []
        for one in ready:
            shares.append(min((one.computed - one.seen_computed) * token_s / passed, 1.0))
            one.seen_computed = one.computed
        return sum(shares) / len(shares)

    def _resize(self, wanted: int, now: float) -> None:
        """The newest go first, as with processes and containers; what they have begun they finish."""
        there = [one for one in self._replicas if not one.leaving]
        for _ in range(wanted - len(there)):
            self._ask(now)
        for replica in there[wanted:]:
            replica.leaving = True
            self._leave(replica, now)
        self.most = max(self.most, wanted)

    def _ask(self, now: float) -> None:
        replica = Replica(Engine(self._shape), now)
        self._replicas.append(replica)

        def started(at: float) -> None:
            replica.ready = True
            self._dispatch(at)

        self._at(now + self._times.start_s, started)

    def _leave(self, replica: Replica, now: float) -> None:
        if replica.leaving and replica.gone_at == inf and not replica.engine.running:
            replica.gone_at = now
            self._replicas.remove(replica)
            self._gone.append(replica)


def _tokens(job: Job) -> int:
    return job.prompt + min(job.output, RESERVE)
