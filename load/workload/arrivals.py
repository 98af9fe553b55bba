"""When requests arrive: endless, rising seconds from the start on."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, count, repeat
from random import Random
from typing import Literal

Process = Literal["poisson", "gamma", "constant", "trace"]


def arrivals(process: Process, rate: float, cv: float, random: Random) -> Iterator[float]:
    """`rate` a second. `cv` is the coefficient of variation of gamma's gaps: 1 is Poisson, more is burstier."""
    shape = 1 / cv**2
    gaps: dict[Process, Callable[[], float]] = {
        "poisson": lambda: random.expovariate(rate),
        "gamma": lambda: random.gammavariate(shape, 1 / (rate * shape)),
        "constant": lambda: 1 / rate,
    }
    if process == "constant":
        return (number / rate for number in count())
    gap = gaps[process]
    return accumulate(gap() for _ in repeat(None))


def replayed(times: Sequence[float], speed: float) -> Iterator[float]:
    """A trace's own times (rising, from 0 on), `speed` times as fast; begins again where it ends."""
    gap = times[-1] / max(len(times) - 1, 1) or 1.0
    for round_ in count():
        before = round_ * (times[-1] + gap)
        yield from ((before + at) / speed for at in times)
