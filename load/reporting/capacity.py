"""How many cores, and processes, keep a GPU of a given speed fed, from CPU time that was measured."""

import math
from dataclasses import dataclass

from load.reporting.processes import Kind

FILL = 0.7
"""Share of a core that one process should use at most: beyond, what waits in front of it grows fast."""


ONE_PER_GPU = "inference-front"
"""The worker's own process. It and the engine core serve one GPU and cannot be shared out."""


@dataclass(frozen=True)
class Need:
    """Of one kind of process for one GPU: cores, and processes; 0 where there can be one only, and it is full."""

    cores: float
    processes: int


def cores(cpu_ms: float, tokens_s: float) -> float:
    """Cores that work of `cpu_ms` milliseconds for 1,000 tokens takes at `tokens_s` output tokens a second."""
    return cpu_ms / 1000 * tokens_s / 1000


def ceiling(cpu_ms: float) -> float:
    """Output tokens a second at which such work fills one core: no more for one Python process."""
    return math.inf if cpu_ms <= 0 else 1000 / (cpu_ms / 1000)


def need(kind: Kind, tokens_s: float) -> Need:
    """For one GPU of `tokens_s` output tokens a second. The broker has threads: one process fills several cores."""
    used = cores(kind.cpu_ms.median, tokens_s)
    if kind.role == "broker":
        return Need(used, 1)
    if kind.role == "engine" or kind.name == ONE_PER_GPU:
        return Need(used, 1 if used < 1 else 0)
    return Need(used, max(math.ceil(used / FILL), 1))
