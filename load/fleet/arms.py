"""The policies that are compared, and what one of them made of one load."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from load.fleet.engine import Job, Shape
from load.fleet.fleet import AT_ONCE, Delays, Fleet
from load.fleet.rivals import hashing, least_load, round_robin, two_choices
from load.percentiles import percentile
from stages.schedule.cheapest import cheapest
from stages.schedule.policy import Policy

ROOM = 64
"""Requests that wait at most, for each worker, an equal part for each tenant: beyond that they are refused."""

WARM = 1 / 3
"""So much of the time is not counted."""


@dataclass(frozen=True)
class Arm:
    """One way to place tickets; `make` because some remember what they did."""

    name: str
    make: Callable[[], Policy]
    delays: Delays = field(default_factory=Delays)


def arms(head_blocks: int) -> list[Arm]:
    """The usual ones, ours, and ours if it knew everything at once. `head_blocks` are hashed for the ring."""
    return [
        Arm("round robin", round_robin),
        Arm("least load", least_load),
        Arm("two choices", two_choices),
        Arm("prefix hashing", lambda: hashing(head_blocks)),
        Arm("headrace", lambda: cheapest),
        Arm("optimum", lambda: cheapest, AT_ONCE),
    ]


@dataclass(frozen=True)
class Load:
    """What arrives within so many seconds, for how many workers of which shape."""

    workers: int
    shape: Shape
    seconds: float
    jobs: Callable[[], Iterable[Job]]
    tenants: int = 1


@dataclass(frozen=True)
class Outcome:
    """One arm under one load. `planning_s` is what a ticket cost the policy, in seconds of this machine."""

    arm: str
    jobs: Sequence[Job]
    since: float
    until: float
    busy: float
    refused: int
    planning_s: float

    @property
    def served(self) -> Sequence[Job]:
        return [job for job in self.jobs if self.since <= job.end <= self.until]

    @property
    def served_s(self) -> float:
        """Requests that ended, per second."""
        return len(self.served) / (self.until - self.since)

    def ttft_s(self, share: float, tenant: str = "") -> float:
        """A percentile, of those (of one tenant) that had their first token after the start was over."""
        found = [job.first - job.at for job in self._begun() if not tenant or job.tenant == tenant]
        return percentile(found, share) if found else inf

    @property
    def mean_ttft_s(self) -> float:
        begun = self._begun()
        return sum(job.first - job.at for job in begun) / len(begun) if begun else inf

    @property
    def hit_share(self) -> float:
        """Of all prompt tokens, those that were cached."""
        begun = self._begun()
        return sum(job.cached for job in begun) / max(sum(job.prompt for job in begun), 1)

    @property
    def foreseen(self) -> float:
        """Share of requests of which as much was cached as the policy had expected."""
        begun = self._begun()
        return sum(job.cached == job.predicted for job in begun) / max(len(begun), 1)

    @property
    def fairness(self) -> float:
        """The most tokens that a tenant was served over the least."""
        tokens: dict[str, int] = {}
        for job in self.served:
            tokens[job.tenant] = tokens.get(job.tenant, 0) + job.prompt + job.output
        return max(tokens.values()) / min(tokens.values()) if tokens else inf

    def _begun(self) -> Sequence[Job]:
        return [job for job in self.jobs if job.first >= self.since]


def run(arm: Arm, load: Load) -> Outcome:
    """In virtual time, until the last second of the load: what is not answered by then is not counted."""
    jobs = list(load.jobs())
    room = max(ROOM * load.workers // load.tenants, 1)
    fleet = Fleet(arm.make(), load.workers, load.shape, arm.delays, room=room)
    fleet.run(jobs, until=load.seconds)
    return Outcome(
        arm.name,
        jobs,
        since=WARM * load.seconds,
        until=load.seconds,
        busy=fleet.busy_s / load.workers / load.seconds,
        refused=fleet.refused,
        planning_s=fleet.planning_s / max(fleet.looked_at, 1),
    )


def timed(arm: Arm, load: Load) -> tuple[Outcome, float]:
    """Also how long this took on this machine (s)."""
    began = time.perf_counter()
    return run(arm, load), time.perf_counter() - began
