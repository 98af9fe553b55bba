"""How far an owner is behind, by what its deliveries say: nobody asks the broker for it."""

from broker.journal import JournalRecord
from stages.postprocess.lag import Lag


def record(sequence: int, stored_at: float = 0.0, pending: int = 0) -> JournalRecord:
    return JournalRecord(sequence, stored_at, None, pending)


def test_nothing_has_come_nothing_is_late() -> None:
    """An owner that has just begun says 0, whatever its journal's first sequence is."""
    lag = Lag()
    assert (lag.messages, lag.seconds) == (0, 0.0)


def test_what_is_in_hand_and_what_stands_behind_it_counts() -> None:
    """From the first message that is not in results to the newest that the broker told of."""
    lag = Lag()
    lag.came([record(1001, pending=12), record(1002, pending=11), record(1003, pending=10)])
    assert lag.messages == 13
    lag.done(record(1002))
    assert lag.messages == 11
    lag.done(record(1003))
    assert lag.messages == 10
    lag.came([record(1004, pending=0)])
    assert lag.messages == 1
    lag.done(record(1004))
    assert lag.messages == 0


def test_a_round_that_does_not_end_grows_old() -> None:
    """By the oldest message in it, on the broker's clock; a clock that runs behind that one says 0."""
    now = 100.0
    lag = Lag(lambda: now)
    lag.began(record(1, stored_at=98.0))
    assert lag.seconds == 2.0
    now = 130.0
    assert lag.seconds == 32.0
    now = 90.0
    assert lag.seconds == 0.0
    lag.done(record(1))
    now = 200.0
    assert lag.seconds == 0.0
