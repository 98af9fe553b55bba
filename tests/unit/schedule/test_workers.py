"""What a scheduler believes of its workers."""

import msgspec
import pytest

from schemas.control import Pace, WorkerState
from schemas.grant import Credits
from stages.schedule.workers import Room, Worker, Workers
from tests.unit.schedule.stand_ins import status


def open_now(workers: Workers, now: float = 0.0) -> list[str]:
    """Who may be offered something."""
    return [one.worker for one in workers.candidates(now) if one.open and one.slots]


def test_credits_shrink_with_what_was_placed_since() -> None:
    """Between two heartbeats nothing is offered twice."""
    workers = Workers(silent_s=2)
    worker = workers.heard(status(slots=2, kv_tokens=100), now=0)

    worker.place(Room(60, 50))
    (candidate,) = workers.candidates(0)
    assert (candidate.slots, candidate.kv_tokens, candidate.prefill_tokens) == (1, 40, 50)
    worker.place(Room(60, 50))
    (candidate,) = workers.candidates(0)
    assert (candidate.slots, candidate.kv_tokens, candidate.prefill_tokens) == (0, 0, 100)
    worker.unplace(Room(60, 50))
    worker.unplace(Room(60, 50))
    (candidate,) = workers.candidates(0)
    assert (candidate.slots, candidate.kv_tokens, candidate.prefill_tokens) == (2, 100, 0)


def test_the_reply_is_what_counts_after_a_grant() -> None:
    """The reply's credits include what it took: the placement is given back then."""
    worker, room = Worker(status(slots=4), now=0), Room(10, 8)
    worker.place(room)
    worker.granting()
    worker.granted(Credits(1, 50), all_taken=True)
    worker.unplace(room)
    worker.took(room, 0)

    candidate = worker.candidate(0)
    assert (candidate.slots, candidate.kv_tokens, candidate.prefill_tokens) == (1, 50, 8)
    assert worker.open


def test_one_grant_at_a_time() -> None:
    """While a grant is on its way its worker is offered nothing, but is known to be there: the next grant gathers."""
    workers = Workers(silent_s=2)
    workers.heard(status(), now=0).granting()

    assert [(one.worker, one.open) for one in workers.candidates(0)] == [("w1", False)]


def test_a_worker_that_refused_or_did_not_answer_is_left_alone_until_its_next_heartbeat() -> None:
    """No loop of grants that are refused again and again."""
    workers = Workers(silent_s=2)
    for room in (None, Credits(4, 100)):
        worker = workers.heard(status(), now=0)
        worker.granting()
        worker.granted(room, all_taken=False)
        assert open_now(workers) == []
        workers.heard(status(), now=0.5)
        assert open_now(workers) == ["w1"]


def test_what_has_to_run_alone_takes_the_whole_worker() -> None:
    """Until its placement is settled."""
    workers = Workers(silent_s=2)
    worker = workers.heard(status(), now=0)
    worker.place(Room(10, 8, alone=True))
    assert open_now(workers) == []
    worker.unplace(Room(10, 8, alone=True))
    assert open_now(workers) == ["w1"]


def test_only_a_ready_worker_is_offered_anything() -> None:
    """Draining and stalled workers get no ticket, and no ticket waits for them. Full ones may be waited for."""
    workers = Workers(silent_s=2)
    workers.heard(status("draining", state="draining"), now=0)
    workers.heard(status("stalled", state="stalled"), now=0)
    workers.heard(status("full", slots=0), now=0)
    workers.heard(status("good"), now=0)

    assert [one.worker for one in workers.candidates(0)] == ["full", "good"]
    assert open_now(workers) == ["good"]


def test_silence_is_two_seconds_without_a_heartbeat() -> None:
    """A worker is forgotten once its heartbeats are missing for the limit, not before, and may come back."""
    workers = Workers(silent_s=2)
    workers.heard(status("a"), now=0)
    workers.heard(status("b"), now=1)

    assert workers.fall_silent(now=2.0) == []
    assert [silent.id for silent in workers.fall_silent(now=2.1)] == ["a"]
    assert open_now(workers) == ["b"]
    workers.heard(status("a"), now=2.2)
    assert len(workers.candidates(2.2)) == 2


def test_who_said_that_it_goes_is_not_lost() -> None:
    """The count for the alert has those that fell silent at work, or with a stalled engine."""
    workers = Workers(silent_s=2)
    states: dict[str, WorkerState] = {"working": "ready", "stopping": "draining", "hung": "stalled"}
    for name, state in states.items():
        workers.heard(status(name, state=state), now=0)
    assert (len(workers), workers.ready) == (3, 1)
    assert len(workers.fall_silent(now=3)) == 3
    assert (workers.lost, workers.ready) == (2, 0)


def test_prompts_are_computed_at_the_workers_own_pace() -> None:
    """Between two heartbeats what it has to prefill becomes less by full steps; a heartbeat says how much is left."""
    beat = msgspec.structs.replace(status(), pace=Pace(0.05, 0.001, 0.0015), prefill_tokens=1000, step_tokens=100)
    worker = Worker(beat, now=10)

    assert [worker.candidate(at).prefill_tokens for at in (10, 11, 12, 13)] == [1000, 500, 0, 0]
    worker.took(Room(500, 400), 11)
    assert [worker.candidate(at).prefill_tokens for at in (11, 12, 13)] == [900, 400, 0]
    worker.place(Room(500, 300))
    assert [worker.candidate(at).prefill_tokens for at in (11, 13)] == [1200, 300], "not on its way yet"
    worker.report(beat, now=13)
    assert worker.candidate(13).prefill_tokens == 1300
    candidate = worker.candidate(13)
    assert Pace(candidate.base_s, candidate.decode_s, candidate.prefill_s) == beat.pace


def test_an_end_comes_nearer() -> None:
    """A worker says when it has a free slot again; that time passes here too."""
    worker = Worker(msgspec.structs.replace(status(slots=0), free_in_s=0.5), now=10)
    assert [worker.candidate(at).free_in_s for at in (10, 10.25, 11)] == [0.5, 0.25, 0]


@pytest.mark.parametrize(("max_slots", "expected"), [(0, [1, 1]), (8, [4, 5])])
def test_what_is_placed_runs_already(max_slots: int, expected: list[int]) -> None:
    """A worker is as busy as the slots that are taken of it, where it says how many it has."""
    worker = Worker(msgspec.structs.replace(status(slots=4), max_slots=max_slots, running=1), now=0)
    found = [worker.candidate(0).running]
    worker.place(Room(10, 8))
    assert [*found, worker.candidate(0).running] == expected


def test_what_was_served_counts_once() -> None:
    """By tenant, since the heartbeat before; the first one says nothing, nor does a count that began anew."""
    workers = Workers(silent_s=2)

    def served(**tokens: int) -> list[tuple[str, int]]:
        beat = msgspec.structs.replace(status(), served=tokens)
        found = workers.served_since(beat)
        workers.heard(beat, now=0)
        return found

    assert served(a=1000) == []
    assert served(a=1100, b=7) == [("a", 100), ("b", 7)]
    assert served(a=1100, b=8) == [("b", 1)]
    assert served(a=20, b=8) == []
    assert served(a=50, b=8) == [("a", 30)]
