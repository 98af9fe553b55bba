"""What Headrace set out to reach on a machine of 2 cores, as data. Whether it did is judged from results alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from load.reporting import metrics as m
from load.reporting.arms import HTTP, NATS
from load.reporting.metrics import Metric
from load.reporting.results import WAITING, Case

FAST = "fast"
H100 = "h100-70b"
SIMULATED = "simulated"
"""No profile of a GPU: Headrace's own simulated engine, where none is needed."""

BOTH = (NATS, HTTP)


@dataclass(frozen=True)
class Target:
    """A rule for a metric of some arms at some workloads of one profile; see `rules` for the rule's grammar."""

    workloads: tuple[str, ...]
    arms: tuple[str, ...]
    metric: Metric
    rule: str
    profile: str = FAST


class Single(NamedTuple):
    """One workload, one arm, one rule."""

    case: Case
    arm: str
    metric: Metric
    rule: str


def singly(targets: tuple[Target, ...]) -> Iterator[Single]:
    """Each target for each of its workloads and arms."""
    for target in targets:
        for workload in target.workloads:
            for arm in target.arms:
                yield Single(Case(workload, target.profile), arm, target.metric, target.rule)


CLOSED = ("W1-C16", "W1-C64", "W1-C256")

TARGETS = (
    Target(CLOSED, (NATS,), m.REQUESTS_S, ">= 0.97 x engine-only"),
    Target(CLOSED, (NATS,), m.ITL_P50, "<= 1.6 x engine-only"),
    Target(("W1-C256",), (NATS,), m.REQUESTS_S, ">= 2 x vllm-serve"),
    Target(("W1-C256",), (NATS,), m.REQUESTS_S, "> best smg"),
    Target(CLOSED, (HTTP,), m.REQUESTS_S, ">= best smg"),
    Target(("W1-20s",), (NATS,), m.TTFT_P50, "<= best peer + 3 ms"),
    Target(("W1-20s",), (HTTP,), m.TTFT_P50, "<= best peer + 6 ms"),
    Target(("W1-20s",), BOTH, m.TTFT_P99, "<= best peer + 10 ms"),
    Target(("W2",), BOTH, m.REQUESTS_S, ">= 0.99 x engine-only"),
    Target(("W2",), BOTH, m.CPU_REQUEST, "< best peer"),
    Target(("W3",), BOTH, m.REQUESTS_S, ">= 0.95 x engine-only"),
    Target(("W3",), BOTH, m.EVENTS, ">= 0.8"),
    Target(("W3",), BOTH, m.ITL_P99, "<= 2 x engine-only"),
    Target(("W3",), (NATS,), m.CPU_OUTSIDE, "<= 45 ms"),
    Target(("W3",), (HTTP,), m.CPU_OUTSIDE, "<= 70 ms"),
    Target(("h100-W1-C64",), BOTH, m.REQUESTS_S, ">= 0.99 x engine-only", H100),
    Target(("W4",), (NATS,), m.GOODPUT, ">= best peer"),
    Target(("W4",), (NATS,), m.LOST, "<= 0"),
    Target(("C1",), (NATS,), m.TTFT_P50, "<= engine-only + 6 ms"),
    Target(("C1",), (HTTP,), m.TTFT_P50, "<= engine-only + 9 ms"),
    Target(("C1",), BOTH, m.ITL_P50, "<= engine-only + 0.2 ms"),
    Target(("C1024",), BOTH, m.CPU_TOKENS, "<= itself at W1-C64"),
    Target(("h100-W1-C64-gpus2",), BOTH, m.REQUESTS_S, ">= 1.9 x itself at h100-W1-C64-gpus1", H100),
    Target((WAITING,), (NATS,), m.WAITING, "<= 4 KB", SIMULATED),
)
