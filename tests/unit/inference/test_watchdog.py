"""A hung engine is noticed, a busy or idle one is left alone."""

from stages.inference.watchdog import Watchdog


def test_hung_engine() -> None:
    """Work in hand and no step for longer than the limit: stalled (case E1)."""
    watchdog = Watchdog(2.0, now=0.0)
    watchdog.gave_work(10.0)
    assert not watchdog.stalled(12.0)
    assert watchdog.stalled(12.1)


def test_steps_are_life() -> None:
    """However long an answer takes, each step starts the clock anew."""
    watchdog = Watchdog(2.0, now=0.0)
    watchdog.gave_work(0.0)
    for second in range(1, 100):
        watchdog.gave_work(float(second))
        watchdog.stepped(float(second), busy=True)
        assert not watchdog.stalled(second + 1.9)
    assert watchdog.stalled(101.1)


def test_more_work_is_no_life() -> None:
    """Requests that keep coming do not make a hung engine look alive."""
    watchdog = Watchdog(2.0, now=0.0)
    for second in range(5):
        watchdog.gave_work(float(second))
    assert watchdog.stalled(4.0)


def test_idle_engine() -> None:
    """Without work it may stay silent; the first request after starts the clock."""
    watchdog = Watchdog(2.0, now=0.0)
    assert not watchdog.stalled(1000.0)
    watchdog.gave_work(1000.0)
    watchdog.stepped(1001.0, busy=False)
    assert not watchdog.stalled(2000.0)
    watchdog.gave_work(2000.0)
    watchdog.idle()
    assert not watchdog.stalled(3000.0)


def test_own_pause_is_not_the_engines() -> None:
    """After this process stood still, the engine gets its whole limit again."""
    watchdog = Watchdog(2.0, now=0.0)
    watchdog.gave_work(0.0)
    assert watchdog.looked(0.5) == 0.5
    assert watchdog.looked(30.5) == 30.0
    assert not watchdog.stalled(30.5)
    assert watchdog.looked(31.0) == 0.5
    assert watchdog.stalled(32.6)


def test_the_age_of_a_step() -> None:
    """What is shown of a step before it counts as hung: since the last one ended, while there is work."""
    watchdog = Watchdog(20.0, now=0.0)
    assert watchdog.step_age(100.0) == 0.0
    watchdog.gave_work(100.0)
    assert watchdog.step_age(101.5) == 1.5
    watchdog.stepped(102.0, busy=True)
    assert watchdog.step_age(115.0) == 13.0
    watchdog.stepped(116.0, busy=False)
    assert watchdog.step_age(300.0) == 0.0
