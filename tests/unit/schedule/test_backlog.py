"""How fast a backlog goes, and what is told of it."""

from collections.abc import Callable

import pytest

from schemas.backlog import TENANTS, Backlog
from stages.schedule.backlog import BacklogMeter, HeldBack
from stages.schedule.backlog_reports import ModelBacklog
from stages.schedule.dispatch import Assignment, Work
from stages.schedule.fairness import Tenants
from stages.schedule.held import Held, Phase
from stages.schedule.window import Window
from stages.schedule.workers import Worker
from tests.unit.schedule.stand_ins import MODEL, delivery, status, ticket

RESERVE = 8


def run(meter: BacklogMeter, seconds: float, rate: float, *, begin: float, waiting: int = 5, workers: int = 1) -> float:
    """Grants at that rate in ticks of 50 ms; returns the time after it."""
    ticks = round(seconds / 0.05)
    for tick in range(1, ticks + 1):
        meter.looked(begin + tick * 0.05, waiting=waiting, granted=round(rate * 0.05), workers=workers)
    return begin + ticks * 0.05


def busy(rate: float = 1000) -> BacklogMeter:
    """Twenty seconds of backlog at that rate."""
    meter = BacklogMeter()
    meter.looked(0, waiting=5, granted=0, workers=1)
    run(meter, 20, rate, begin=0)
    return meter


def held(sequence: int, *, tenant: str = "t", prompt: int = 92) -> Held:
    """A ticket of `prompt` + 8 tokens that may be granted."""
    one = ticket(str(sequence), tenant=tenant, prompt=prompt)
    return Held(delivery(one, sequence), one, 0, pulled_at=0, deadline_at=60, phase=Phase.READY)


def test_the_rate_is_that_of_grants_while_something_waits() -> None:
    """Within a second nothing is said; after a change the new rate shows within the memory of ten seconds."""
    meter = BacklogMeter()
    meter.looked(0, waiting=5, granted=64_000, workers=1)
    now = run(meter, 0.9, 1000, begin=0)
    assert meter.rate == 0
    now = run(meter, 5, 1000, begin=now)
    assert meter.rate == pytest.approx(1000, rel=0.05)
    run(meter, 10, 3000, begin=now)
    assert 2000 < meter.rate < 2600


def test_the_rate_at_which_tickets_come_is_not_the_workers() -> None:
    """Where nothing was left over, neither grants nor time count: free workers take whatever comes."""
    meter = busy()
    now = run(meter, 0.05, 1000, begin=20, waiting=0)
    now = run(meter, 60, 50, begin=now, waiting=0)
    meter.looked(now, waiting=9, granted=100_000, workers=1)
    assert meter.rate == pytest.approx(1000, rel=0.05)


def test_time_without_a_worker_says_nothing_of_a_rate() -> None:
    """And none is known meanwhile."""
    meter = busy()
    meter.looked(20, waiting=5, granted=0, workers=0)
    now = run(meter, 30, 0, begin=20, workers=0)
    assert meter.rate == 0
    run(meter, 0.1, 1000, begin=now)
    assert meter.rate == pytest.approx(1000, rel=0.05)


def test_a_process_that_stood_still_measures_nothing_by_it() -> None:
    """Neither the time nor what is granted after it."""
    meter = busy()
    meter.looked(50, waiting=5, granted=60_000, workers=1)
    assert meter.rate == pytest.approx(1000, rel=0.05)


def test_beginning_and_end_of_a_backlog_are_noticed_once() -> None:
    """Both are told at once."""
    meter = BacklogMeter()
    changes = [
        meter.looked(at / 10, waiting=waiting, granted=0, workers=1) for at, waiting in enumerate([0, 3, 2, 0, 0])
    ]
    assert changes == [False, True, False, True, False]


def test_the_prediction_is_tokens_over_rates() -> None:
    """What is held goes at our own rate, what nobody has pulled at that of all schedulers."""
    meter, waiting = busy(1000), HeldBack(tickets=10, tokens=5000)

    assert meter.seconds(waiting, 0, 0) == pytest.approx(5, rel=0.05)
    assert meter.seconds(waiting, 20, 1000) == pytest.approx(5 + 20 * 500 / 2000, rel=0.05)
    assert meter.seconds(HeldBack(), 0, 0) == 0
    assert BacklogMeter().seconds(waiting, 0, 0) == -1


def test_tenants_with_the_most_are_listed() -> None:
    """Tokens are prompt and reserve, as grants count them; the sums are of all tenants."""
    waiting = [held(1, tenant="a"), held(2, tenant="b", prompt=192), held(3, tenant="a")]
    assert HeldBack.of(waiting, RESERVE) == HeldBack(3, 400, {"a": 200, "b": 200})

    many = HeldBack.of([held(number, tenant=f"t{number}", prompt=number) for number in range(1, TENANTS + 11)], 0)
    assert len(many.tenants) == TENANTS
    assert many.tickets == TENANTS + 10
    assert "t10" not in many.tenants


class Told:
    """Where a backlog is told."""

    instance = "s1"

    def __init__(self) -> None:
        self.messages: list[Backlog] = []
        self.in_tickets = 0

    def tell(self, backlog: Backlog) -> None:
        self.messages.append(backlog)

    def others(self, model: str) -> float:
        return 0.0

    def count_pending(self, model: str, counted: Callable[[int], None]) -> None:
        counted(self.in_tickets)


def made(slots: int = 4) -> tuple[ModelBacklog, Window, Told]:
    window, told = Window(), Told()
    return ModelBacklog(MODEL, window, told, slots=slots, reserve=RESERVE), window, told


def test_a_model_that_nobody_uses_or_serves_is_not_spoken_of() -> None:
    """With a worker it is, every half second."""
    backlog, _, told = made()
    for tick in range(20):
        backlog.looked(0, tick / 10)
    assert told.messages == []
    for tick in range(20, 41):
        backlog.looked(1, tick / 10)
    assert len(told.messages) == 5
    assert told.messages[0] == Backlog(scheduler="s1", model=MODEL)


def test_a_backlog_is_told_at_once_when_it_begins_and_when_it_ends() -> None:
    """With tickets and tokens; what is placed by the same tick does not wait."""
    backlog, window, told = made()
    backlog.looked(1, 1.0)
    tickets = [held(number) for number in range(1, 4)]
    for one in tickets:
        window.put(one)
    tickets[0].enter(Phase.PLACED)
    backlog.ticked(Work(opened=[Assignment(tickets[0], Worker(status(), 0), 100, 0, Tenants())]), 1, 1.1)
    assert [(one.tickets, one.tokens, one.seconds) for one in told.messages] == [(0, 0, 0), (2, 200, -1)]
    for one in tickets[1:]:
        one.enter(Phase.PLACED)
    backlog.ticked(Work(), 1, 1.2)
    assert (told.messages[-1].tickets, told.messages[-1].seconds) == (0, 0)
    assert len(told.messages) == 3


def test_what_has_come_since_the_last_tick_does_not_wait_yet() -> None:
    """A look between two ticks begins no backlog."""
    backlog, window, told = made()
    backlog.ticked(Work(), 1, 1.0)
    window.put(held(1))
    backlog.looked(1, 1.2)
    backlog.looked(1, 1.6)
    assert [one.tickets for one in told.messages] == [0, 0]


def test_a_backlog_that_comes_and_goes_all_the_time_is_told_now_and_then() -> None:
    """Not at every tick."""
    backlog, window, told = made()
    one = held(1)
    window.put(one)
    for tick in range(1000):
        one.enter(Phase.READY if tick % 2 else Phase.PLACED)
        backlog.ticked(Work(), 1, 1 + tick / 1000)
    assert len(told.messages) <= 21


def test_tickets_are_pending_only_where_the_window_is_full() -> None:
    """With a free slot whatever lies in TICKETS would have been pulled."""
    backlog, window, told = made(slots=2)
    window.put(held(1))
    backlog.pulled(0)
    backlog.ticked(Work(), 1, 1.0)
    window.put(held(2))
    backlog.pulled(7)
    backlog.ticked(Work(), 1, 2.0)
    window.remove(window.of_sequence(1))
    backlog.ticked(Work(), 1, 3.0)
    assert [one.pending for one in told.messages] == [0, 7, 0]


def test_tickets_are_counted_where_none_was_pulled_for_a_while() -> None:
    """The last delivery knows nothing of those that came after it."""
    backlog, window, told = made(slots=1)
    window.put(held(1))
    backlog.pulled(0)
    told.in_tickets = 3
    for second in range(1, 4):
        backlog.ticked(Work(), 1, second)
    assert [one.pending for one in told.messages] == [0, 3, 3]
