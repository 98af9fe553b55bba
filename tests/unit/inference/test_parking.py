"""What has to run alone on a worker: when it runs, what else the worker takes meanwhile, and how it is handed back."""

from schemas.control import DropItem
from schemas.grant import Credits
from schemas.journal import Released
from stages.inference.engine import Advance
from stages.inference.parking import PARK_S
from tests.unit.inference.holdings import FACTS, Holdings, grant, item

ALONE = "t.alone/0/20"
NEIGHBOUR = "t.r/0/10"


def alone(name: str = "alone", *, sequence: int = 9, attempt: int = 20, deaths: int = 2, **more: object):
    return item(name, sequence=sequence, attempt=attempt, deaths=deaths, **more)  # pyright: ignore[reportArgumentType]


def parked(*neighbours: str) -> Holdings:
    """A worker with these neighbours in its engine, and a ticket that has to run alone."""
    holdings = Holdings()
    items = [item(name, sequence=number) for number, name in enumerate(neighbours or ("r",), start=1)]
    holdings.worker.take(grant(*items))
    assert holdings.worker.take(grant(alone())).taken == [9]
    return holdings


def names(holdings: Holdings) -> list[str]:
    return [request.id for request in holdings.engine.added]


def test_an_idle_worker_runs_it_at_once_and_takes_nothing_with_it() -> None:
    """In the same grant, or in the next: until its first token there are no credits."""
    holdings = Holdings()
    reply = holdings.worker.take(grant(alone(), item("r", sequence=1)))
    assert (reply.taken, reply.credits) == ([9], Credits(0, 0))
    assert names(holdings) == [ALONE]
    assert holdings.worker.status(1).parked == []
    assert holdings.worker.take(grant(item("r", sequence=1))).taken == []
    holdings.step(Advance(ALONE, [5]))
    assert holdings.worker.credits().slots == 3
    assert holdings.worker.take(grant(item("r", sequence=1))).taken == [1]


def test_one_death_is_no_reason_to_run_alone() -> None:
    """It runs beside the others, as anything else."""
    holdings = Holdings()
    holdings.worker.take(grant(item("r", sequence=1)))
    holdings.worker.take(grant(alone(deaths=1)))
    assert names(holdings) == [NEIGHBOUR, ALONE]


def test_a_busy_worker_parks_it_until_its_engine_is_empty() -> None:
    """It is held, and kept alive; the neighbours end within a second, nothing new comes, then it runs."""
    holdings = parked("r", "other")
    status = holdings.worker.status(1)
    assert (status.held, status.parked, status.running, status.credits) == ([1, 2, 9], [9], 2, Credits(0, 0))
    holdings.step(Advance(NEIGHBOUR, [5], finish="length"))
    assert (holdings.worker.unpark(), names(holdings)) == ("", [NEIGHBOUR, "t.other/0/10"])
    holdings.worker.drop([DropItem("t.other", 0, 10)])
    assert holdings.worker.unpark() == ALONE
    assert (holdings.worker.status(2).parked, 9 in holdings.worker.status(2).held) == ([], True)
    assert ALONE not in names(holdings), "schedulers have to hear first that it is not parked any more"
    assert holdings.worker.take(grant(item("late", sequence=3))).taken == []
    holdings.worker.begin(ALONE)
    assert names(holdings)[-1] == ALONE
    assert holdings.worker.status(3).running == 1


def test_neighbours_that_run_on_are_handed_back() -> None:
    """After a second, no sooner: they go on elsewhere after what they have, no death, and what was parked begins."""
    holdings = parked("r", "done")
    holdings.step(Advance(NEIGHBOUR, [5]), Advance("t.done/0/10", [6], finish="length"))
    holdings.clock = 100.0 + PARK_S
    assert holdings.worker.release_for_parked() == 0
    assert holdings.engine.aborted == []
    holdings.clock += 0.1
    assert holdings.worker.release_for_parked() == 1
    assert (holdings.engine.aborted, holdings.worker.release_for_parked()) == ([NEIGHBOUR], 0)
    assert holdings.worker.status(1).parked == [9], "until a heartbeat says that it begins"
    holdings.worker.begin(holdings.worker.unpark())
    assert names(holdings)[-1] == ALONE
    holdings.clock += 10 * PARK_S
    assert holdings.worker.release_for_parked() == 0, "what runs alone is no neighbour"
    (message,) = holdings.store()
    assert message.released == [Released("t.r", 0, 10, died=False, worker="w")]
    assert sorted((one.key, one.ids, one.finish) for one in message.tokens) == [
        ("t.done", [6], "length"),
        ("t.r", [5], ""),
    ]


def test_neighbours_stay_where_nothing_could_begin() -> None:
    """Nothing parked, or a worker that drains: what runs goes on, however long."""
    holdings = Holdings()
    holdings.worker.take(grant(item("r", sequence=1)))
    holdings.clock += 10 * PARK_S
    assert holdings.worker.release_for_parked() == 0
    holdings = parked()
    holdings.worker.state = "draining"
    holdings.clock += 10 * PARK_S
    assert holdings.worker.release_for_parked() == 0
    assert holdings.worker.status(1).running == 1


def test_only_one_is_taken_until_it_has_shown_itself_harmless() -> None:
    """A second one stays with its scheduler, in the same grant and later; when the first has a token, it may come."""
    holdings = Holdings()
    second = alone("second", sequence=10, attempt=21)
    assert holdings.worker.take(grant(alone(), second)).taken == [9]
    assert holdings.worker.take(grant(second)).taken == []
    holdings.step(Advance(ALONE, [5]))
    assert holdings.worker.take(grant(second)).taken == [10]
    assert holdings.worker.status(1).parked == [10]


def test_credits_come_back_however_it_ends() -> None:
    """Cancelled, dropped, past its deadline, failed, forgotten: parked or running, the worker serves others again."""
    for end in ("cancel", "drop", "expire", "forget"):
        for waits in (True, False):
            holdings = parked() if waits else Holdings()
            if not waits:
                holdings.worker.take(grant(alone()))
            if end == "cancel":
                holdings.worker.cancel("t.alone")
            elif end == "drop":
                holdings.worker.drop([DropItem("t.alone", 0, 20)])
            elif end == "expire":
                holdings.unix += 60
                holdings.worker.expire()
            else:
                holdings.worker.forget_all()
            holdings.store()
            assert 9 not in holdings.worker.status(1).held
            assert holdings.worker.credits().slots >= 3, (end, waits)
            assert holdings.engine.aborted.count(ALONE) == (0 if waits else 1)


def test_a_deadline_reaches_what_is_parked() -> None:
    """It ends in its fault without having cost a step."""
    holdings = parked()
    holdings.unix += 60
    holdings.worker.expire()
    ends = [end for message in holdings.store() for end in message.ends]
    assert sorted(end.key for end in ends) == ["t.alone", "t.r"]
    assert names(holdings) == [NEIGHBOUR]


def test_it_is_larger_than_what_is_free() -> None:
    """It begins with an empty engine: what neighbours take now does not count."""
    holdings = parked()
    holdings.worker.cancel("t.alone")
    large = alone("large", prompt=[1] * 60, max_tokens=4)
    for number in range(2, 4):
        holdings.worker.take(grant(item(f"n{number}", sequence=number, prompt=[1] * 40)))
    assert holdings.worker.take(grant(large)).taken == [9]
    assert FACTS.slots == 4


def test_an_engine_that_dies_takes_down_what_ran_and_not_what_waited() -> None:
    """Only what the engine had is a death; what is finished and not stored stays finished."""
    holdings = parked("r", "done")
    holdings.step(Advance("t.done/0/10", [6], finish="length"))
    assert holdings.worker.release_all(died=True) == 2
    (message,) = holdings.store()
    assert message.released == [
        Released("t.r", 0, 10, died=True, worker="w"),
        Released("t.alone", 0, 20, died=False, worker="w"),
    ]


def test_a_drain_hands_back_what_is_parked_at_once() -> None:
    """It would wait for the neighbours; elsewhere it may run now. No death. Unparked or not, while it did not begin."""
    for unparked in (True, False):
        holdings = parked()
        if unparked:
            holdings.worker.cancel("t.r")
            holdings.worker.unpark()
        holdings.worker.state = "draining"
        holdings.worker.release_parked()
        holdings.worker.begin(ALONE)
        (message,) = holdings.store()
        assert message.released == [Released("t.alone", 0, 20, died=False, worker="w")]
        assert ALONE not in names(holdings)


def test_a_draining_worker_does_not_begin_it() -> None:
    """Whatever empties the engine meanwhile."""
    holdings = parked()
    holdings.worker.state = "draining"
    holdings.step(Advance(NEIGHBOUR, [5], finish="length"))
    assert holdings.worker.unpark() == ""


def test_a_newer_attempt_takes_its_place() -> None:
    """The ticket came again: the place goes to the attempt that counts."""
    holdings = parked()
    assert holdings.worker.take(grant(alone(attempt=30))).taken == [9]
    holdings.worker.cancel("t.r")
    assert holdings.worker.unpark() == "t.alone/0/30"


def test_already_complete_or_impossible_needs_no_engine() -> None:
    """All tokens are there, or it can never run: it does not wait for the neighbours to be told."""
    holdings = Holdings()
    holdings.worker.take(grant(item("r", sequence=1)))
    assert holdings.worker.take(grant(alone(ids=[5] * 8))).taken == [9]
    assert holdings.worker.take(grant(alone("bad", sequence=10, prompt=[5000]))).taken == [10]
    (message,) = holdings.store()
    assert [(one.key, one.finish) for one in message.tokens] == [("t.alone", "length")]
    assert [one.key for one in message.ends] == ["t.bad"]
    assert holdings.worker.credits().slots == 3
