"""What workers hold of ours."""

from stages.schedule.granted import SETTLE_S, Granted, GrantedTickets


def granted(*sequences: int, worker: str = "w") -> GrantedTickets:
    tickets = GrantedTickets()
    for sequence in sequences:
        tickets.add(Granted(sequence, f"ack.{sequence}", worker, granted_at=0.0))
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
    tickets.add(Granted(3, "ack.3", "other", 0.0))

    assert sorted(one.ack_subject for one in tickets.take_back("w")) == ["ack.1", "ack.2"]
    assert tickets.take_back("w") == []
    assert 3 in tickets
    assert len(tickets) == 1


def test_a_ticket_that_moved_on_is_not_taken_back_from_its_former_worker() -> None:
    """A NAK with the subject of an older delivery would hit whoever has the ticket now."""
    tickets = granted(1)

    tickets.add(Granted(1, "ack.1.new", "other", 0.0))
    assert tickets.take_back("w") == []
    assert tickets.forget(1)
    assert not tickets.forget(1)
    assert tickets.take_back("other") == []
