"""Calls that nothing can stop: nobody waits for them longer than told, and it is known how many still run."""

import threading

import pytest

from stages.inference.bounded_calls import BoundedCalls, OverrunError, Patience


def test_a_call_that_ends_in_time() -> None:
    """Its answer, or what it raised; its thread serves the next call."""
    calls = BoundedCalls()
    first, spent = calls.run(threading.get_ident, 30)
    assert calls.run(threading.get_ident, 30)[0] == first != threading.get_ident()
    assert spent >= 0
    with pytest.raises(ZeroDivisionError):
        calls.run(lambda: 1 // 0, 30)
    assert calls.lost() == 0


def test_a_call_that_does_not_end() -> None:
    """It counts as lost until it is back, and holds up no other; its answer never becomes another's."""
    calls = BoundedCalls()
    go, back = threading.Event(), threading.Event()

    def hang() -> str:
        go.wait(30)
        back.set()
        return "late"

    with pytest.raises(OverrunError):
        calls.run(hang, 0.01)
    assert calls.lost() == 1
    assert calls.run(lambda: "other", 30)[0] == "other"
    go.set()
    assert back.wait(30)
    while calls.lost():
        pass
    assert [calls.run(lambda: "next", 30)[0] for _ in range(3)] == ["next"] * 3


def test_patience() -> None:
    """What calls took is missing for the next ones, down to the least; it comes back with time, up to the most."""
    now = [100.0]
    patience = Patience(most=1.0, least=0.1, back=0.5, clock=lambda: now[0])
    assert patience.left() == 1.0
    patience.took(0.75)
    assert patience.left() == 0.25
    patience.took(5.0)
    assert patience.left() == 0.1
    now[0] += 1
    assert patience.left() == 0.5
    now[0] += 100
    assert patience.left() == 1.0
