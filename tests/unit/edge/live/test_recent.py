"""The slowest requests of an edge: of one's own tenant, few, and not for long."""

import pytest

from stages.edge.access.callers import Caller
from stages.edge.http.exchange import Exchange
from stages.edge.live.recent import MOST, TENANTS, WINDOW_S, Recent


class Clock:
    """Seconds as the test says."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recent(clock: Clock) -> Recent:
    return Recent(clock)


def came(recent: Recent, clock: Clock, name: str, *, tenant: str = "a", generates: bool = True) -> Exchange:
    exchange = Exchange(started=clock.now, request_id=name, caller=Caller(tenant), model="m", generates=generates)
    recent.began(exchange)
    return exchange


def end(recent: Recent, exchange: Exchange, outcome: str = "stop") -> None:
    exchange.status, exchange.outcome, exchange.route = 200, outcome, "/v1/chat/completions"
    exchange.count(3, 5)
    recent.ended(exchange)


def test_the_slowest_come_first_and_those_in_hand_count(recent: Recent, clock: Clock) -> None:
    """One in hand has no status yet; one that ended says what it ended with."""
    slow = came(recent, clock, "slow")
    clock.now += 5
    quick = came(recent, clock, "quick")
    clock.now += 1
    end(recent, quick)
    listed = recent.slowest("a")
    assert [(each.id, each.seconds, each.status) for each in listed] == [("slow", 6.0, 0), ("quick", 1.0, 200)]
    assert (listed[1].outcome, listed[1].input_tokens, listed[1].output_tokens) == ("stop", 3, 5)
    assert recent.running() == 1
    end(recent, slow)
    assert recent.running() == 0


def test_a_stream_is_in_hand_although_its_status_is_out(recent: Recent, clock: Clock) -> None:
    """Its head was sent long before its end."""
    stream = came(recent, clock, "stream")
    stream.status = 200
    assert recent.slowest("a")[0].status == 0


def test_nobody_sees_another_tenants(recent: Recent, clock: Clock) -> None:
    """Neither what ended nor what runs, nor by its name."""
    end(recent, came(recent, clock, "ended", tenant="b"))
    came(recent, clock, "runs", tenant="b")
    assert recent.slowest("a") == []
    assert recent.in_hand("a", "runs") is None
    assert {each.id for each in recent.slowest("b")} == {"ended", "runs"}


def test_what_generates_nothing_is_not_listed(recent: Recent, clock: Clock) -> None:
    """Lists of models, probes, this page itself."""
    end(recent, came(recent, clock, "models", generates=False))
    came(recent, clock, "more", generates=False)
    assert recent.slowest("a") == []
    assert recent.running() == 0


def test_it_is_bounded(recent: Recent, clock: Clock) -> None:
    """The slowest are kept, however many there are; tenants of whom nothing is heard are forgotten."""
    for number in range(3 * MOST):
        exchange = came(recent, clock, f"r{number}")
        clock.now += 1 + number % 7
        end(recent, exchange)
    listed = recent.slowest("a")
    assert len(listed) == MOST
    assert {each.seconds for each in listed} <= {5.0, 6.0, 7.0}
    for number in range(TENANTS):
        end(recent, came(recent, clock, "other", tenant=f"t{number}"))
    assert recent.slowest("a") == []
    assert recent.slowest("t0") != []


def test_it_forgets(recent: Recent, clock: Clock) -> None:
    """What ended ten minutes ago is not listed any more."""
    end(recent, came(recent, clock, "old"))
    clock.now += WINDOW_S - 1
    assert recent.slowest("a") != []
    clock.now += 1
    assert recent.slowest("a") == []


def test_a_request_in_hand_is_found_by_both_its_names(recent: Recent, clock: Clock) -> None:
    """Its id, or the `X-Request-Id` that the id begins with; not by a part of that."""
    exchange = came(recent, clock, "live-abc-0123abcd")
    assert recent.in_hand("a", "live-abc-0123abcd") is exchange
    assert recent.in_hand("a", "live-abc") is exchange
    for name in ("live", "live-ab", ""):
        assert recent.in_hand("a", name) is None
