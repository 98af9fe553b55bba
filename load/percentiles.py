"""Percentiles of a list of readings, by nearest rank: every one is a value that was measured."""

import math
from collections.abc import Sequence

SHOWN = (50.0, 90.0, 99.0)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` percent of `values` do not exceed. Raises `ValueError` for no values."""
    if not values:
        raise ValueError("no values, no percentile")
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * share / 100), 1) - 1]


def summary(values: Sequence[float]) -> dict[str, float]:
    """`p50`, `p90`, `p99` and `max`."""
    found = {f"p{share:g}": percentile(values, share) for share in SHOWN}
    return {**found, "max": max(values)}
