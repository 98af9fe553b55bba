"""A figure that was measured several times: its median, and how far the repeats lie apart."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Median, least and largest of `count` repeats."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """None where nothing was measured."""
        known = [value for value in values if value is not None]
        return cls(statistics.median(known), min(known), max(known), len(known)) if known else None

    def text(self, unit: str = "") -> str:
        """`43.5`, or where repeats differ `43.5 (42.9-44.0)`; the unit at the end."""
        low, high = number(self.low), number(self.high)
        spread = f" ({low}-{high})" if low != high else ""
        return f"{number(self.median)}{spread}{unit and ' ' + unit}"


def number(value: float) -> str:
    """Three significant digits, at most three decimals; from 1,000 on whole numbers with commas."""
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 or not size else 3
    return f"{value:,.{digits}f}" if size else "0"
