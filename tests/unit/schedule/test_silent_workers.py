"""What becomes of the tickets of a worker that is not heard of any more."""

import msgspec

from schemas.journal import Released
from tests.unit.schedule.bench import bench
from tests.unit.schedule.stand_ins import ticket


async def test_a_silent_worker_gives_back_its_tickets() -> None:
    """What was granted to it, with what its journal is told; others keep theirs."""
    one = bench(w1=1, w2=1)
    one.pull(ticket("a"), 1)
    one.pull(ticket("b"), 2)
    await one.tick()
    granted_to = {worker: grant.items[0].sequence for worker, grant in one.workers.grants}
    one.later += 2.5
    del one.workers.slots["w1"]
    one.beat(held=[granted_to["w2"]])

    (silence,) = one.scheduler.take_back_silent(one.now)
    taken_back = silence.tickets
    assert [(one.granted.sequence, one.granted.worker) for one in taken_back] == [(granted_to["w1"], "w1")]
    (item,) = next(grant.items for worker, grant in one.workers.grants if worker == "w1")
    assert taken_back[0].released == Released(item.ticket.key, 0, item.attempt, died=True, worker="w1")
    assert one.scheduler.take_back_silent(one.now) == []


async def test_a_worker_that_is_heard_again_had_not_died() -> None:
    """What it had is with others by now, but says nothing against the requests; a stalled one is as good as dead."""
    one = bench(w1=1)
    one.pull(ticket("a"), 1)
    await one.tick()
    status = next(iter(one.scheduler.workers)).status
    one.later += 2.5
    one.scheduler.take_back_silent(one.now)

    assert one.scheduler.acquitted(msgspec.structs.replace(status, worker="another")) == []
    assert one.scheduler.acquitted(msgspec.structs.replace(status, state="stalled")) == []
    assert [granted.sequence for granted in one.scheduler.acquitted(status)] == [1]
    assert one.scheduler.acquitted(status) == []


async def test_a_silence_that_may_be_our_own_counts_no_death() -> None:
    """The broker was away, or we stood still, and the worker was not heard of since: its tickets move, no more."""
    one = bench(w1=1)
    one.pull(ticket("a"), 1)
    await one.tick()
    disturbed_at = one.now + 0.1
    one.later += 2.5

    (silence,) = one.scheduler.take_back_silent(one.now, undisturbed_since=disturbed_at)
    (taken_back,) = silence.tickets
    assert not taken_back.released.died


async def test_a_grant_that_nobody_answered_is_no_death() -> None:
    """Its worker may have been dead before: nothing says that the ticket ever reached it. The owner is asked."""
    one = bench(w1=2)
    one.workers.silent = {"w1"}
    one.pull(ticket("a"), 1)
    await one.tick()
    one.later += 2.5
    assert [silence.tickets for silence in one.scheduler.take_back_silent(one.now)] == [[]]
    await one.tick()
    assert [entry.fresh for entry in one.journal.opens] == [True, False]


async def test_a_reply_of_a_worker_that_is_silent_by_then_is_no_grant() -> None:
    """Nobody would take the ticket back a second time: it is asked about, as after a grant without an answer."""
    one = bench(w1=1)

    def silence() -> None:
        one.later += 2.5
        assert [silent.worker for silent in one.scheduler.take_back_silent(one.now)] == ["w1"]

    one.workers.before_reply = silence
    one.pull(ticket("a"), 1)
    await one.tick()
    one.workers.before_reply = lambda: None
    await one.tick()

    assert len(one.scheduler.granted) == 0
    assert one.journal.opens[-1].reply, "the owner is asked where the next attempt goes on"
