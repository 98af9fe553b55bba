"""Percentiles are values that were measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.percentiles import percentile, summary


def test_known_values() -> None:
    """Of 1 to 100, p50 is 50, p99 is 99 and the maximum 100; of one value all are that value."""
    assert summary([float(n) for n in range(100, 0, -1)]) == {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    assert summary([7.0]) == {"p50": 7, "p90": 7, "p99": 7, "max": 7}


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(1, 100))
def test_share(values: list[float], share: float) -> None:
    """At least that share of the values does not exceed the percentile, which is one of them."""
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * share / 100 - 1e-9


def test_no_values() -> None:
    """Nothing measured has no percentile."""
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
