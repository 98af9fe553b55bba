"""When throughput is back: by the rate of the last second and the streams in progress, both."""

from load.throughput import Return, Throughput


def test_the_rate_is_that_of_the_last_second() -> None:
    """What came earlier does not count."""
    throughput, rate = Throughput(), 0.0
    for tick in range(40):
        throughput.add(5 if tick < 20 else 10)
        rate = throughput.rate(tick / 10)
    assert 95 < rate < 105


def watched(dips: dict[int, float], until: int) -> Return:
    """A look every 0.1 s; `dips` are the rates at the ticks at which they change."""
    back, rate = Return(0.0, 100.0, 10), 100.0
    for tick in range(1, until):
        rate = dips.get(tick, rate)
        back.look(tick / 10, rate, 10)
    return back


def test_never_low() -> None:
    """A fault that nobody noticed takes no time; it is judged once a whole second has gone by."""
    assert not watched({}, 9).back
    assert watched({}, 12).back
    assert watched({}, 50).seconds == 0


def test_low_and_back() -> None:
    """The time from the fault until the rate was back to stay; a later dip counts in the sum alone."""
    back = watched({5: 20.0, 31: 100.0, 80: 50.0, 85: 100.0}, 120)
    assert back.back
    assert round(back.seconds, 1) == 3.0
    assert round(back.low_s, 1) == 3.1


def test_a_burst_is_no_return() -> None:
    """Tokens that were held back make the rate look good while few streams are in progress."""
    back = Return(0.0, 100.0, 10)
    for tick in range(1, 40):
        back.look(tick / 10, 300.0, 2)
    assert not back.back
