"""Figures are told with what is known of them, and no more digits."""

import pytest

from load.reporting.spread import Spread, number


def test_spread() -> None:
    """Median, least and largest; what a run did not measure does not count as 0."""
    assert Spread.of([3.0, None, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert Spread.of([None]) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.0314, "0.031"),
        (0.97, "0.970"),
        (0.9996, "1.00"),
        (1.0, "1.00"),
        (9.996, "10.0"),
        (43.54, "43.5"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (-2.5, "-2.50"),
    ],
)
def test_number(value: float, shown: str) -> None:
    """Three significant digits, also where rounding adds a place; never more than three decimals."""
    assert number(value) == shown


def test_text() -> None:
    """The brackets appear where repeats differ visibly; the unit stands once, at the end."""
    assert Spread(43.5, 42.9, 44.0, 3).text("ms") == "43.5 (42.9-44.0) ms"
    assert Spread(43.51, 43.50, 43.52, 3).text() == "43.5"
