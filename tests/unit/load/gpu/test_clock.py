"""Steps of a simulated GPU queue, and their outputs come when they are over."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.gpu.clock import GpuClock, Step


def test_steps_queue() -> None:
    """A step begins when the one before is over, or at once on an idle GPU."""
    clock = GpuClock()
    assert clock.start(10.0, 2.0) == 12.0
    assert clock.start(11.0, 2.0) == 14.0
    assert clock.start(20.0, 1.0) == 21.0


def test_busy_time() -> None:
    """What is queued counts as far as it is done; idle time does not count."""
    clock = GpuClock()
    assert clock.busy_s(5.0) == 0
    clock.start(10.0, 2.0)
    clock.start(10.5, 2.0)
    assert [clock.busy_s(moment) for moment in (10.0, 11.0, 13.0, 14.0, 19.0)] == [0, 1, 3, 4, 4]
    clock.start(20.0, 1.0)
    assert clock.busy_s(20.5) == 4.5


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1))
def test_never_busier_than_time_passes(steps: list[tuple[float, float]]) -> None:
    """Whatever is queued, the busy time of a window is between nothing and its length."""
    clock, now, before = GpuClock(), 0.0, 0.0
    for wait, seconds in steps:
        clock.start(now, seconds)
        now += wait
        assert -1e-6 <= clock.busy_s(now) - before <= wait + 1e-6
        before = clock.busy_s(now)


def test_an_output_comes_at_the_end_of_its_step() -> None:
    """Never before; asked for again, or late, it is there."""
    ends_at = time.monotonic() + 0.05
    step = Step("output", ends_at)
    assert not step.done()
    assert step.result() == "output"
    assert time.monotonic() >= ends_at
    assert step.done()
    assert step.result() == "output"
    assert Step(None).done()


def test_impatience() -> None:
    """Who waits for a limited time gets a `TimeoutError` before the end, the output after it."""
    with pytest.raises(TimeoutError):
        Step("output", time.monotonic() + 60).result(0.001)
    assert Step("output", time.monotonic() + 0.01).result(60) == "output"
