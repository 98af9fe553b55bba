"""A fleet that grows and shrinks in virtual time: replicas start, take from a queue, drain, and cost meanwhile.

The queue is the schedulers': first come, first served, to the replica with the least of prompts ahead of it, and no
prompt goes to one that has two steps of prompts to compute, as in `stages/schedule/seat.py`. What an autoscaler sees is
what it sees of a real pipeline, with the schedulers' own measure of the backlog.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from math import inf

from load.fleet.engine import Engine, Job, Shape
from stages.autoscaling.seen import Seen
from stages.schedule.backlog import BacklogMeter, HeldBack
from stages.schedule.seat import PREFILL_STEPS

RESERVE = 64
"""Tokens of an answer that count with its prompt, as in the schedulers' measure of what waits."""

LOOK_S = 0.25
"""So often a backlog is measured when nothing else happens."""

Scaler = Callable[[Seen], int]
"""The replicas to ask for, by what is seen."""


@dataclass(eq=False, slots=True)
class Replica:
    """One engine, from when it is asked for (s) until it is gone."""

    engine: Engine
    asked_at: float
    ready: bool = False
    leaving: bool = False
    gone_at: float = inf
    version: int = 0
    computed: int = 0
    seen_computed: int = 0


@dataclass(frozen=True)
class Lifetimes:
    """Seconds: from asking for a replica until it takes work; between two looks of the autoscaler."""

    start_s: float = 60.0
    every_s: float = 2.0


@dataclass
class History:
    """What became of it, look by look: time, replicas asked for, ready, waiting."""

    looks: list[tuple[float, int, int, int]] = field(default_factory=list[tuple[float, int, int, int]])


class ElasticFleet:
    """Begins with `begin` replicas that are ready; `scaler` says how many there should be."""

    def __init__(
        self, shape: Shape, begin: int, scaler: Scaler | None = None, lifetimes: Lifetimes | None = None
    ) -> None:
        self._shape = shape
        self._scaler = scaler
        self._lifetimes = lifetimes or Lifetimes()
        self._replicas = [Replica(Engine(shape), 0.0, ready=True) for _ in range(begin)]
        self._gone: list[Replica] = []
        self._queue: deque[Job] = deque()
        self._queued_tokens = 0
        self._meter = BacklogMeter()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._looked_at = 0.0
        self.history = History()

    def run(self, jobs: Iterable[Job], until: float) -> None:
        """All that arrive, until they are answered; the autoscaler looks until the moment `until`."""
        arrivals = iter(jobs)
        self._next_arrival(arrivals)
        if self._scaler is not None:
            self._at(0.0, lambda now: self._look(now, until))
        self._at(LOOK_S, lambda now: self._measure(now, until))
        while self._events:
            now, _, action = heapq.heappop(self._events)
            action(now)

    def replica_s(self, until: float) -> float:
        """Of all replicas together, from asking for them until they were gone."""
        return sum(min(one.gone_at, until) - one.asked_at for one in [*self._gone, *self._replicas])

    def _at(self, at: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at, next(self._order), action))

    def _next_arrival(self, arrivals: "Iterable[Job]") -> None:
        job = next(iter(arrivals), None)
        if job is not None:
            self._at(job.at, lambda now: self._arrived(job, arrivals, now))

    def _arrived(self, job: Job, arrivals: Iterable[Job], now: float) -> None:
        self._queue.append(job)
        self._queued_tokens += _tokens(job)
        self._next_arrival(arrivals)
        self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        """As many as there is room for."""
        granted, limit = 0, PREFILL_STEPS * self._shape.step_tokens
        while self._queue:
            job = self._queue[0]
            needs = job.prompt + min(job.output, RESERVE)
            open_ = [
                (one.engine.prefill_tokens, one.engine.running, number)
                for number, one in enumerate(self._replicas)
                if one.ready and not one.leaving and self._takes(one.engine, needs, limit)
            ]
            if not open_:
                break
            chosen = self._replicas[min(open_)[2]]
            self._queue.popleft()
            self._queued_tokens -= _tokens(job)
            granted += _tokens(job)
            chosen.engine.add(job, now)
            self._plan(chosen)
        self._meter.looked(now, waiting=len(self._queue), granted=granted, workers=self._ready())

    def _takes(self, engine: Engine, needs: int, limit: int) -> bool:
        running = engine.running
        return (
            running < self._shape.slots and engine.prefill_tokens < limit and (needs <= engine.kv_free or not running)
        )

    def _plan(self, replica: Replica) -> None:
        replica.version += 1
        if replica.engine.at < inf:
            self._at(replica.engine.at, lambda at, version=replica.version: self._step(replica, version, at))

    def _step(self, replica: Replica, version: int, now: float) -> None:
        if version != replica.version:
            return  # something was added meanwhile: its row ends earlier
        replica.engine.advance()
        replica.computed += sum(job.prompt - job.cached for job in replica.engine.begun)
        self._plan(replica)
        if replica.leaving:
            self._leave_if_idle(replica, now)
        if self._queue:
            self._dispatch(now)

    def _measure(self, now: float, until: float) -> None:
        self._meter.looked(now, waiting=len(self._queue), granted=0, workers=self._ready())
        if now < until or self._queue:
            self._at(now + LOOK_S, lambda at: self._measure(at, until))

    def _look(self, now: float, until: float) -> None:
        assert self._scaler is not None
        seen = self.seen(now)
        self.history.looks.append((now, seen.replicas, seen.ready, seen.waiting))
        self._resize(self._scaler(seen), now)
        if now < until or self._queue:
            self._at(now + self._lifetimes.every_s, lambda at: self._look(at, until))

    def _ready(self) -> int:
        return sum(one.ready and not one.leaving for one in self._replicas)

    def seen(self, now: float) -> Seen:
        """As the autoscaler of a real pipeline sees it."""
        there = [one for one in self._replicas if not one.leaving]
        ready = [one for one in there if one.ready]
        passed, self._looked_at = now - self._looked_at, now
        busy = computing = -1.0
        if ready:
            busy = sum(self._share(one.engine) for one in ready) / len(ready)
            if passed > 0:
                tokens = sum(one.computed - one.seen_computed for one in ready)
                token_s = self._shape.prefill_s + self._shape.base_s / self._shape.step_tokens
                computing = min(tokens * token_s / passed / len(ready), 1.0)
        for one in ready:
            one.seen_computed = one.computed
        held = HeldBack(len(self._queue), self._queued_tokens)
        backlog_s = self._meter.seconds(held, 0, 0.0)
        return Seen(now, len(there), len(ready), len(self._queue), backlog_s, busy, computing=computing)

    def _share(self, engine: Engine) -> float:
        kv = 1 - engine.kv_free / self._shape.kv_tokens if engine.running else 0.0
        return min(max(engine.running / self._shape.slots, kv), 1.0)

    def _resize(self, wanted: int, now: float) -> None:
        """The newest go first, as with processes and containers; what they have begun they finish."""
        there = [one for one in self._replicas if not one.leaving]
        for _ in range(wanted - len(there)):
            replica = Replica(Engine(self._shape), now)
            self._replicas.append(replica)
            self._at(now + self._lifetimes.start_s, lambda at, replica=replica: self._started(replica, at))
        for replica in there[wanted:]:
            replica.leaving = True
            self._leave_if_idle(replica, now)

    def _started(self, replica: Replica, now: float) -> None:
        replica.ready = True
        self._dispatch(now)

    def _leave_if_idle(self, replica: Replica, now: float) -> None:
        if not replica.engine.running and replica in self._replicas:
            replica.gone_at = now
            self._replicas.remove(replica)
            self._gone.append(replica)


def _tokens(job: Job) -> int:
    return job.prompt + min(job.output, RESERVE)
