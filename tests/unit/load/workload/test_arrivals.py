"""Arrivals have the rate and the burstiness that was asked for, and a trace its own times."""

from itertools import islice, pairwise
from random import Random
from statistics import mean, stdev

import pytest

from load.workload.arrivals import Process, arrivals, replayed


def gaps(process: Process, cv: float = 2.0) -> list[float]:
    times = islice(arrivals(process, 20.0, cv, Random(1)), 20_000)
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize(("process", "cv"), [("poisson", 1.0), ("gamma", 2.0), ("gamma", 0.5)])
def test_rate_and_variation(process: Process, cv: float) -> None:
    """The mean gap is that of the rate, its coefficient of variation that of the process; times only rise."""
    found = gaps(process, cv)
    assert min(found) >= 0
    assert mean(found) == pytest.approx(1 / 20, rel=0.06)
    assert stdev(found) / mean(found) == pytest.approx(cv, rel=0.06)


def test_constant() -> None:
    """Every gap is the same, and they do not add up errors."""
    assert list(islice(arrivals("constant", 4.0, 2.0, Random(1)), 5)) == [0, 0.25, 0.5, 0.75, 1.0]


def test_the_same_seed() -> None:
    """The seed decides the times."""
    first, again, other = (list(islice(arrivals("gamma", 5, 2, Random(seed)), 9)) for seed in (3, 3, 4))
    assert first == again != other


def test_replayed() -> None:
    """A trace keeps its times, faster as asked, and goes on from its beginning a mean gap behind its end."""
    assert list(islice(replayed([0.0, 1.0, 4.0], 2.0), 5)) == [0, 0.5, 2, 3, 3.5]
    assert list(islice(replayed([0.0], 1.0), 3)) == [0, 1, 2]
