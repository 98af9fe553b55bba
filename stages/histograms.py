"""Histograms of durations that cost a microsecond to record, for Prometheus alone.

OpenTelemetry's own take tens of microseconds for each duration (they clean, copy and hash its attributes), which is
more than some stages need for the request itself.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

MOST_SERIES = 2000
"""Sets of labels of one metric (OpenTelemetry's own limit): a caller may bring any, the rest counts as `other`."""

Labels = Mapping[str, str]
Key = frozenset[tuple[str, str]]


@dataclass(slots=True)
class Series:
    """Durations of one set of labels: how many lie in each bucket (the last one is open), and their sum in seconds."""

    counts: list[int]
    sum: float = 0.0


class Histogram:
    """`bounds` are the upper ends of the buckets, in seconds. Every duration comes with the same names of labels.

    Recorded by one thread, read by any.
    """

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._text = text
        self._bounds = tuple(bounds)
        self._series: dict[Key, Series] = {}

    def record(self, seconds: float, labels: Labels) -> None:
        """One duration."""
        series = self._series.get(frozenset(labels.items())) or self._new(labels)
        series.counts[bisect_left(self._bounds, seconds)] += 1
        series.sum += seconds

    def family(self) -> Metric:
        """As Prometheus reads it."""
        taken = [(dict(key), series) for key, series in list(self._series.items())]
        names = sorted(taken[0][0]) if taken else []
        family = HistogramMetricFamily(self._name, self._text, labels=names)
        for labels, series in taken:
            family.add_metric([labels[name] for name in names], self._buckets(series), series.sum)
        return family

    def _new(self, labels: Labels) -> Series:
        return self._series.setdefault(new_key(labels, self._series), Series([0] * (len(self._bounds) + 1)))

    def _buckets(self, series: Series) -> list[tuple[str, float]]:
        ends = [*map(str, self._bounds), "+Inf"]
        return list(zip(ends, map(float, accumulate(series.counts)), strict=True))


class Histograms(Collector):
    """All of a process, as one collector of a registry."""

    def __init__(self) -> None:
        self._made: list[Histogram] = []

    def make(self, name: str, text: str, bounds: Sequence[float]) -> Histogram:
        """A new one; `name` is Prometheus' own, with its unit."""
        histogram = Histogram(name, text, bounds)
        self._made.append(histogram)
        return histogram

    def collect(self) -> Iterator[Metric]:
        """Everything recorded so far."""
        return (histogram.family() for histogram in list(self._made))


class Sums:
    """Numbers by their labels, whatever these are. Added by one thread."""

    def __init__(self) -> None:
        self._sums: dict[Key, int] = {}

    def add(self, count: int, labels: Labels) -> None:
        """`count` more of these labels."""
        key = frozenset(labels.items())
        if key not in self._sums:
            key = new_key(labels, self._sums)
        self._sums[key] = self._sums.get(key, 0) + count

    def read(self) -> Iterable[tuple[float, Labels]]:
        """The sums so far, with their labels. For any thread."""
        return [(count, dict(key)) for key, count in list(self._sums.items())]


class Counts:
    """As `Sums`, for labels whose `names` are known and whose values are few: for what is counted with every step."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, count: int, *values: str) -> None:
        """`count` more of these values, one for each name."""
        self._counts[values] = self._counts.get(values, 0) + count

    def read(self) -> Iterable[tuple[float, Labels]]:
        """The sums so far, with their labels. For any thread."""
        return [(count, dict(zip(self._names, values, strict=True))) for values, count in list(self._counts.items())]


def new_key(labels: Labels, known: Sized) -> Key:
    """Where these labels count that no series has yet."""
    if len(known) < MOST_SERIES:
        return frozenset(labels.items())
    return frozenset((name, "other") for name in labels)
