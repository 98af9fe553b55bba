"""What the autoscaler makes of what is seen of a pipeline."""

import pytest

from schemas.control import Pace
from stages.autoscaling.observing import NotKnown, seen_of
from tests.unit.stages.autoscaling.snapshots import backlog, consumer, replicas, snapshot, stream, worker


def test_what_waits_for_workers_is_what_schedulers_say() -> None:
    """Tickets, and the seconds that one that comes now will wait."""
    now = snapshot(backlogs=[backlog(tickets=12, seconds=8.5)], workers=[worker(running=10)], requests_per_s=3.0)
    seen = seen_of("inference", now, None, replicas(inference=2), 7.0)
    assert (seen.at, seen.replicas, seen.ready) == (7.0, 2, 1)
    assert (seen.waiting, seen.backlog_s, seen.arrived) == (12, 8.5, 3.0)


def test_a_wait_that_nobody_can_tell_is_unknown() -> None:
    """Without a worker there is no rate."""
    now = snapshot(backlogs=[backlog(tickets=3, seconds=-1.0)])
    seen = seen_of("inference", now, None, replicas(inference=0), 0.0)
    assert (seen.waiting, seen.backlog_s, seen.ready, seen.busy) == (3, -1.0, 0, -1.0)


def test_busy_is_the_fuller_of_slots_and_kv_cache() -> None:
    """On average over the workers that take work; those that drain or start count for nothing."""
    slots, kv = worker("a", running=5, kv_free=900), worker("b", running=1, kv_free=100)
    draining = worker("c", running=10, state="draining")
    seen = seen_of("inference", snapshot(workers=[slots, kv, draining]), None, replicas(inference=3), 0.0)
    assert (seen.busy, seen.ready) == (pytest.approx((0.5 + 0.9) / 2), 2)


def test_what_is_cached_of_prompts_that_ended_is_not_busy() -> None:
    """An idle worker may have a full cache."""
    seen = seen_of("inference", snapshot(workers=[worker(kv_free=0)]), None, replicas(inference=1), 0.0)
    assert seen.busy == 0.0


def test_computing_is_what_prompts_take_of_the_workers_time() -> None:
    """By the tokens since the last look and each worker's own pace; unknown for those that have not said it."""
    pace = Pace(0.01, 0.0, 0.001)
    before = snapshot(at=98.0, workers=[worker("a", tokens_in=1000, pace=pace), worker("b", tokens_in=500, pace=pace)])
    now = snapshot(workers=[worker("a", tokens_in=2000, pace=pace), worker("b", tokens_in=500, pace=pace), worker("c")])
    seen = seen_of("inference", now, before, replicas(inference=3), 0.0)
    assert seen.computing == pytest.approx((1000 * 0.001 / 2 + 0) / 2)
    assert seen_of("inference", now, None, replicas(inference=3), 0.0).computing == -1.0


def test_a_model_by_itself_and_all_together() -> None:
    """The wait of all is that of the model that is worst off."""
    now = snapshot(
        backlogs=[backlog("a", 2, 1.0), backlog("b", 3, 9.0)], workers=[worker("x", model="a"), worker("y", model="b")]
    )
    one = seen_of("inference:a", now, None, replicas(inference__a=1), 0.0)
    assert (one.waiting, one.backlog_s, one.ready) == (2, 1.0, 1)
    everything = seen_of("inference", now, None, replicas(inference=2), 0.0)
    assert (everything.waiting, everything.backlog_s, everything.ready) == (5, 9.0, 2)


def test_tickets_of_a_model_that_no_scheduler_serves_wait_too() -> None:
    """From zero: the queue itself says it, with its consumer and without."""
    queued = snapshot(backlogs=[], consumers={"schedule_m": consumer("TICKETS", pending=3, in_hand=1)})
    assert seen_of("inference:m", queued, None, replicas(inference__m=0), 0.0).waiting == 4
    unclaimed = snapshot(backlogs=[], consumers={}, unclaimed={"TICKETS": 2})
    seen = seen_of("inference", unclaimed, None, replicas(inference=0), 0.0)
    assert (seen.waiting, seen.backlog_s) == (2, -1.0)


def test_tickets_that_come_back_from_who_held_them_wait() -> None:
    """A worker died, and its ticket lies unacknowledged until it is delivered again: that is no idle pipeline."""
    now = snapshot(consumers={"schedule_m": consumer("TICKETS", in_hand=1)}, workers=[worker()])
    assert seen_of("inference", now, None, replicas(inference=1), 0.0).waiting == 1
    held = snapshot(consumers={"schedule_m": consumer("TICKETS", in_hand=1)}, workers=[worker(held=[4])])
    assert seen_of("inference", held, None, replicas(inference=1), 0.0).waiting == 0
    working = snapshot(consumers={"schedule_m": consumer("TICKETS", in_hand=5)}, workers=[worker(running=2)])
    assert seen_of("inference", working, None, replicas(inference=1), 0.0).waiting == 0


def test_without_schedulers_nobody_knows() -> None:
    """Silence is not idleness."""
    with pytest.raises(NotKnown, match="no scheduler was heard"):
        seen_of("inference", snapshot(backlogs=[], workers=[worker()]), None, replicas(inference=1), 0.0)


@pytest.mark.parametrize(
    ("group", "part"), [("inference", "workers"), ("preprocess", "consumers"), ("postprocess", "leases")]
)
def test_what_may_not_be_looked_at_is_not_known(group: str, part: str) -> None:
    """With the reason."""
    with pytest.raises(NotKnown, match="not permitted"):
        seen_of(group, snapshot(unseen={part: "not permitted"}), None, replicas(**{group: 1}), 0.0)


def test_requests_wait_for_preprocess() -> None:
    """Those that nobody took and those in hand, at the rate at which they went since the last look."""
    before = snapshot(at=98.0, streams={"REQUESTS": stream(messages=10, last=100)})
    now = snapshot(
        streams={"REQUESTS": stream(messages=30, last=160)},
        consumers={"preprocess": consumer("REQUESTS", pending=20, in_hand=10)},
    )
    seen = seen_of("preprocess", now, before, replicas(preprocess=2, ready=1), 0.0)
    assert (seen.replicas, seen.ready, seen.waiting, seen.busy) == (2, 1, 30, -1.0)
    assert seen.backlog_s == pytest.approx(30 / 20)


@pytest.mark.parametrize(
    ("waited", "waits", "done", "wait_s"),
    [
        (0, 0, 0, 0.0),  # nothing to do
        (10, 50, 100, 1.0),
        (10, 10, 0, -1.0),  # it stands still
        (0, 50, 1, 2.0),  # a burst that has just begun says nothing of the rate
        (0, 50, 0, 2.0),
        (0, 1, 100, 0.02),
    ],
)
def test_how_long_what_waits_in_a_queue_will_wait(waited: int, waits: int, done: int, wait_s: float) -> None:
    """At the rate of the two seconds between two looks; nothing has waited longer than since it was not there."""
    before = snapshot(at=98.0, streams={"JOURNAL_0": stream(waited, first=1)})
    now = snapshot(at=100.0, streams={"JOURNAL_0": stream(waits, first=1 + done)})
    seen = seen_of("postprocess", now, before, replicas(postprocess=1), 0.0)
    assert (seen.waiting, seen.backlog_s) == (waits, pytest.approx(wait_s))


def test_without_anybody_who_works_the_wait_is_unknown() -> None:
    """Although it may have been done quickly until now; one look alone says nothing of the rate."""
    now = snapshot(streams={"JOURNAL_0": stream(5)}, postprocesses=[])
    assert seen_of("postprocess", now, snapshot(at=98.0), replicas(postprocess=1), 0.0).backlog_s == -1.0
    alone = snapshot(streams={"JOURNAL_0": stream(5)})
    assert seen_of("postprocess", alone, None, replicas(postprocess=1), 0.0).backlog_s == 0.0


def test_what_preprocess_holds_back_for_tickets_is_not_its_work() -> None:
    """While workers are behind, more of preprocess would bring nothing."""
    now = snapshot(
        streams={"REQUESTS": stream(messages=500)},
        consumers={"preprocess": consumer("REQUESTS", in_hand=500)},
        backlogs=[backlog(tickets=1000, seconds=60)],
    )
    seen = seen_of("preprocess", now, None, replicas(preprocess=1), 0.0)
    assert (seen.waiting, seen.backlog_s) == (0, 0.0)


def test_before_preprocess_ever_ran_all_requests_wait() -> None:
    """There is no consumer yet."""
    now = snapshot(streams={"REQUESTS": stream(messages=7)})
    del now.depths.consumers["preprocess"]
    seen = seen_of("preprocess", now, None, replicas(preprocess=0), 0.0)
    assert (seen.waiting, seen.backlog_s) == (7, -1.0)


def test_the_lag_of_the_journals_waits_for_postprocess() -> None:
    """Their length is the lag, their first sequence what was done; ready are those with a lease or in line for one."""
    before = snapshot(at=98.0, streams={"JOURNAL_0": stream(first=10), "JOURNAL_1": stream(first=5)})
    now = snapshot(streams={"JOURNAL_0": stream(40, first=60), "JOURNAL_1": stream(20, first=55)})
    seen = seen_of("postprocess", now, before, replicas(postprocess=2), 0.0)
    assert (seen.waiting, seen.ready, seen.busy) == (60, 1, -1.0)
    assert seen.backlog_s == pytest.approx(60 / 50)


def test_a_stream_without_a_leader_is_not_empty() -> None:
    """It is missing in what the broker lists."""
    for group, name in (("preprocess", "REQUESTS"), ("postprocess", "JOURNAL_1")):
        now = snapshot()
        del now.depths.streams[name]
        with pytest.raises(NotKnown, match=f"{name} has no leader"):
            seen_of(group, now, None, replicas(**{group: 1}), 0.0)
