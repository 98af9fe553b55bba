"""Histograms and sums that are kept as plain numbers."""

from prometheus_client import CollectorRegistry, generate_latest

from stages.histograms import MOST_SERIES, Counts, Histograms, Sums


def test_a_duration_counts_in_its_bucket_and_all_above() -> None:
    """Buckets are cumulative and hold their upper end, as Prometheus has them; the last one is open."""
    registry, histograms = CollectorRegistry(), Histograms()
    registry.register(histograms)
    made = histograms.make("h_seconds", "what", [0.5, 1, 10])
    for seconds in (0.5, 0.6, 7.0, 11.0):
        made.record(seconds, {"model": "m", "stage": "s"})

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"model": "m", "stage": "s", **labels})

    assert [value("h_seconds_bucket", le=end) for end in ("0.5", "1", "10", "+Inf")] == [1, 2, 3, 4]
    assert (value("h_seconds_count"), value("h_seconds_sum")) == (4, 19.1)


def test_every_set_of_labels_is_a_series_of_its_own() -> None:
    """In whatever order they are named; a histogram without durations still tells what it is."""
    registry, histograms = CollectorRegistry(), Histograms()
    registry.register(histograms)
    made = histograms.make("h_seconds", "what", [1])
    assert b"# TYPE h_seconds histogram" in generate_latest(registry)
    made.record(0.1, {"a": "1", "b": "2"})
    made.record(0.1, {"b": "2", "a": "1"})
    made.record(0.1, {"a": "2", "b": "1"})
    assert registry.get_sample_value("h_seconds_count", {"a": "1", "b": "2"}) == 2
    assert registry.get_sample_value("h_seconds_count", {"a": "2", "b": "1"}) == 1


def test_counts_are_sums_by_their_values() -> None:
    """Read as often as one likes, they only grow."""
    counts = Counts("direction", "model")
    counts.add(3, "input", "m")
    counts.add(4, "input", "m")
    counts.add(1, "output", "m")
    expected = [(7, {"direction": "input", "model": "m"}), (1, {"direction": "output", "model": "m"})]
    assert list(counts.read()) == expected
    assert list(counts.read()) == expected


def test_labels_that_callers_bring_cannot_grow_without_limit() -> None:
    """Beyond a limit the rest counts together; what was there before goes on."""
    registry, histograms, sums = CollectorRegistry(), Histograms(), Sums()
    registry.register(histograms)
    made = histograms.make("h_seconds", "what", [1])
    for number in [*range(MOST_SERIES + 5), 0]:
        made.record(0.1, {"method": f"M{number}"})
        sums.add(1, {"method": f"M{number}"})
    for value in (_counted(registry), {labels["method"]: count for count, labels in sums.read()}):
        assert len(value) == MOST_SERIES + 1
        assert (value["other"], value["M0"], value["M1"]) == (5, 2, 1)


def _counted(registry: CollectorRegistry) -> dict[str, float]:
    return {
        sample.labels["method"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "h_seconds_count"
    }
