"""What workers hold of ours."""

import pytest

from schemas.control import WorkerStatus
from schemas.journal import Released
from stages.schedule.granted import SETTLE_S, Granted, GrantedTickets
from tests.unit.schedule.stand_ins import status


def one(sequence: int, ack: str = "", worker: str = "w") -> Granted:
    return Granted(
        sequence, ack or f"ack.{sequence}", worker, granted_at=0.0, key="t.r", choice=1, partition=0, attempt=7
    )


def granted(*sequences: int, worker: str = "w") -> GrantedTickets:
    tickets = GrantedTickets()
    for sequence in sequences:
        tickets.add(one(sequence, worker=worker))
    return tickets


def test_forgotten_after_two_heartbeats_without_it() -> None:
    """One heartbeat that does not list a ticket may be older than the grant."""
    tickets = granted(1, 2)

    tickets.heard("w", {2}, now=1.0)
    assert 1 in tickets
    tickets.heard("w", {2}, now=1.5)
    assert 1 not in tickets
    assert 2 in tickets


def test_heartbeats_right_after_the_reply_do_not_count() -> None:
    """However many heartbeats were written before the grant and arrive after it."""
    tickets = granted(1)

    for _ in range(5):
        tickets.heard("w", (), now=SETTLE_S - 0.01)
    assert 1 in tickets


def test_the_count_of_missing_heartbeats_starts_anew() -> None:
    """Only heartbeats in a row count."""
    tickets = granted(1)

    for held in ((), {1}, (), {1}):
        tickets.heard("w", held, now=1.0)
    assert 1 in tickets


def test_a_silent_worker_gives_back_exactly_its_own() -> None:
    """A worker's death returns its tickets, no others, and only once."""
    tickets = granted(1, 2)
    tickets.add(one(3, worker="other"))

    assert sorted(each.ack_subject for each in tickets.take_back("w")) == ["ack.1", "ack.2"]
    assert tickets.take_back("w") == []
    assert 3 in tickets
    assert len(tickets) == 1


def test_a_ticket_that_moved_on_is_not_taken_back_from_its_former_worker() -> None:
    """A NAK with the subject of an older delivery would hit whoever has the ticket now."""
    tickets = granted(1)

    tickets.add(one(1, "ack.1.new", worker="other"))
    assert tickets.take_back("w") == []
    assert tickets.forget(1)
    assert not tickets.forget(1)
    assert tickets.take_back("other") == []


@pytest.mark.parametrize(
    ("last", "died"),
    [
        (status("w", held=[1]), True),
        (status("w", held=[]), True),
        (status("w", held=[1], state="stalled"), True),
        (status("w", held=[1], parked=[1]), False),
        (status("w", held=[1], state="draining"), False),
        (None, False),
    ],
    ids=["running", "granted since", "stalled", "parked", "draining", "not heard of since we were cut off"],
)
def test_whether_an_attempt_died_with_its_worker(last: WorkerStatus | None, died: bool) -> None:
    """A ticket that was not begun says nothing of the request, nor does a worker that was on its way out."""
    assert one(1).released(last) == Released("t.r", 1, 7, died=died, worker="w")


def test_what_a_worker_was_done_with_did_not_die_with_it() -> None:
    """Its last heartbeat is younger than the grant and does not list it any more."""
    tickets = granted(1)
    tickets.heard("w", (), now=1.0)

    (finished,) = tickets.take_back("w")
    assert not finished.released(status("w")).died
