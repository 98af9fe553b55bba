"""The fleets that are compared: one of a fixed size, one that is scaled, one that knows what will come."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from random import Random

from load.fleet.elastic import ElasticFleet, Lifetimes, Scaler
from load.fleet.engine import Job, Shape
from load.workload.traces import TraceRow
from stages.autoscaling.decision import Memory, decide
from stages.autoscaling.rules import Rules
from stages.autoscaling.seen import Seen

TTFT_S, ITL_S = 2.0, 0.1
"""A request is well served with its first token within this, and the others at this pace on average."""

ENOUGH = 0.99
"""The smallest fixed fleet that serves this share of all requests well is the one that is sized for the peak."""

BIN_S, MINUTE_S = 10.0, 60.0
MOST = 128
"""More replicas are no answer: the trace is too large for this bench."""


@dataclass(frozen=True)
class Traffic:
    """A trace, each request `times` times, at most `spread_s` before or after its own time."""

    rows: Sequence[TraceRow]
    times: int = 1
    spread_s: float = 0.0
    seed: int = 1

    @property
    def seconds(self) -> float:
        """Until the last one comes."""
        return self.rows[-1].at

    def jobs(self) -> list[Job]:
        random = Random(self.seed)
        found: list[tuple[float, int, int]] = []
        for row in self.rows:
            for _ in range(self.times):
                at = row.at + random.uniform(-self.spread_s, self.spread_s)
                found.append((min(max(at, 0.0), self.seconds), row.input, row.output))
        found.sort()
        return [Job(number, at, "t", prompt, output) for number, (at, prompt, output) in enumerate(found)]


@dataclass(frozen=True)
class Outcome:
    """`served`: the share of requests that were served well; `most` replicas were asked for at one time."""

    arm: str
    served: float
    replica_s: float
    most: int


def served_well(jobs: Sequence[Job]) -> float:
    """The share; what never had its first token was not."""
    return sum(_is_well(job) for job in jobs) / len(jobs)


def _is_well(job: Job) -> bool:
    if job.first < 0 or job.first - job.at > TTFT_S:
        return False
    return job.output < 2 or (job.end - job.first) / (job.output - 1) <= ITL_S


def run(
    arm: str,
    traffic: Traffic,
    shape: Shape,
    begin: int,
    *,
    scaler: Scaler | None = None,
    times: Lifetimes | None = None,
) -> Outcome:
    """One fleet, from the first request until all are answered; costs count until the last one comes."""
    jobs, fleet = traffic.jobs(), ElasticFleet(shape, begin, scaler, times)
    fleet.run(jobs, traffic.seconds)
    return Outcome(arm, served_well(jobs), fleet.replica_s(traffic.seconds), fleet.most)


def fixed(traffic: Traffic, shape: Shape) -> Outcome:
    """The smallest that serves enough. Raises `ValueError` where `MOST` replicas do not."""
    for count in range(least_possible(traffic, shape), MOST + 1):
        found = run("fixed", traffic, shape, count)
        if found.served >= ENOUGH:
            return found
    raise ValueError(f"not even {MOST} replicas serve {ENOUGH:.0%} of the requests well: ask for fewer copies")


def scaled(traffic: Traffic, shape: Shape, begin: int, rules: Rules, arm: str = "autoscaler") -> Outcome:
    """Ours; a replica really takes as long as the rules say."""
    return run(arm, traffic, shape, begin, scaler=by_rules(rules), times=Lifetimes(rules.start_s))


def by_rules(rules: Rules) -> Scaler:
    memory = Memory()

    def scaler(seen: Seen) -> int:
        nonlocal memory
        decision, memory = decide(rules, memory, seen)
        return decision.replicas

    return scaler


def perfect(traffic: Traffic, shape: Shape, count: int, start_s: float) -> Outcome:
    """Each minute has its share of the fixed fleet, by its busiest ten seconds; asked for as early as a start takes."""
    bins = _work(traffic, shape, BIN_S)
    per_minute = round(MINUTE_S / BIN_S)
    peaks = [max(bins[begin : begin + per_minute]) for begin in range(0, len(bins), per_minute)]
    needs = [max(ceil(count * peak / max(peaks)), 1) for peak in peaks]

    def scaler(seen: Seen) -> int:
        now, later = int(seen.at // MINUTE_S), int((seen.at + start_s) // MINUTE_S)
        return max(needs[now : later + 1], default=1)

    return run("perfect", traffic, shape, needs[0], scaler=scaler, times=Lifetimes(start_s))


def least_possible(traffic: Traffic, shape: Shape) -> int:
    """Fewer could not even compute the prompts of the trace's mean minute."""
    minutes = _work(traffic, shape, MINUTE_S)
    return max(ceil(sum(minutes) / len(minutes) / MINUTE_S), 1)


def _work(traffic: Traffic, shape: Shape, width_s: float) -> list[float]:
    """Seconds of one engine's time that the prompts of each piece of the trace take."""
    token_s = shape.prefill_s + shape.base_s / shape.step_tokens
    found = [0.0] * (int(traffic.seconds // width_s) + 1)
    for job in traffic.jobs():
        found[int(job.at // width_s)] += job.prompt * token_s
    return found


Make = Callable[[Rules], Rules]

VARIATIONS: dict[str, Make] = {
    "as it is": lambda rules: rules,
    "up_busy, down_busy - 0.05": lambda rules: replace(
        rules, up_busy=rules.up_busy - 0.05, down_busy=rules.down_busy - 0.05
    ),
    "up_busy, down_busy + 0.1": lambda rules: replace(
        rules, up_busy=rules.up_busy + 0.1, down_busy=rules.down_busy + 0.1
    ),
    "remember_s 600": lambda rules: replace(rules, remember_s=600.0),
    "remember_s 1800": lambda rules: replace(rules, remember_s=1800.0),
    "smooth_s 5": lambda rules: replace(rules, smooth_s=5.0),
    "smooth_s 20": lambda rules: replace(rules, smooth_s=20.0),
    "cooldown_s 180": lambda rules: replace(rules, cooldown_s=180.0),
    "drain_s 60": lambda rules: replace(rules, drain_s=60.0),
    "start 30 s": lambda rules: replace(rules, start_s=30.0),
    "start 120 s": lambda rules: replace(rules, start_s=120.0),
}
"""One rule at a time, and the start itself."""
