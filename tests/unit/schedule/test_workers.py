"""What a scheduler believes of its workers."""

from schemas.grant import Credits
from stages.schedule.workers import Worker, Workers
from tests.unit.schedule.stand_ins import status


def test_credits_shrink_with_what_was_placed_since() -> None:
    """Between two heartbeats nothing is offered twice."""
    workers = Workers(silent_s=2)
    worker = workers.heard(status(slots=2, kv_tokens=100), now=0)

    worker.place(60)
    assert [(one.slots, one.kv_tokens) for one in workers.candidates()] == [(1, 40)]
    worker.place(60)
    assert workers.candidates() == []


def test_the_reply_is_what_counts_after_a_grant() -> None:
    """The reply's credits include what it took: the placement is given back then."""
    worker = Worker(status(slots=4), now=0)
    worker.place(10)
    worker.granting()
    worker.granted(Credits(1, 50), all_taken=True)
    worker.unplace(10)

    assert (worker.candidate().slots, worker.candidate().kv_tokens) == (1, 50)
    assert worker.takes


def test_one_grant_at_a_time() -> None:
    """While a grant is on its way its worker is offered nothing: the next grant gathers."""
    workers = Workers(silent_s=2)
    workers.heard(status(), now=0).granting()

    assert workers.candidates() == []


def test_a_worker_that_refused_or_did_not_answer_is_left_alone_until_its_next_heartbeat() -> None:
    """No loop of grants that are refused again and again."""
    workers = Workers(silent_s=2)
    for room in (None, Credits(4, 100)):
        worker = workers.heard(status(), now=0)
        worker.granting()
        worker.granted(room, all_taken=False)
        assert workers.candidates() == []
        workers.heard(status(), now=0.5)
        assert len(workers.candidates()) == 1


def test_only_a_ready_worker_is_offered_anything() -> None:
    """Draining and stalled workers get no ticket."""
    workers = Workers(silent_s=2)
    workers.heard(status("draining", state="draining"), now=0)
    workers.heard(status("stalled", state="stalled"), now=0)
    workers.heard(status("good"), now=0)

    assert [one.worker for one in workers.candidates()] == ["good"]


def test_silence_is_two_seconds_without_a_heartbeat() -> None:
    """A worker is forgotten once its heartbeats are missing for the limit, not before, and may come back."""
    workers = Workers(silent_s=2)
    workers.heard(status("a"), now=0)
    workers.heard(status("b"), now=1)

    assert workers.fall_silent(now=2.0) == []
    assert [silent.id for silent in workers.fall_silent(now=2.1)] == ["a"]
    assert [one.worker for one in workers.candidates()] == ["b"]
    workers.heard(status("a"), now=2.2)
    assert len(workers.candidates()) == 2
