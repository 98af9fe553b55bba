"""What a worker takes, tells and lets go, whatever happens to it."""

from dataclasses import replace

import pytest

from schemas.control import DropItem
from schemas.grant import Credits
from schemas.journal import JournalMessage, TokenLogprob
from stages.inference.engine import Advance
from tests.unit.inference.holdings import FACTS, Holdings, grant, item

NAME = "t.r/0/10"


def taken(holdings: Holdings, *names: str) -> None:
    items = [item(name, sequence=number) for number, name in enumerate(names, start=1)]
    assert holdings.worker.take(grant(*items)).taken == [one.sequence for one in items]


def one_of(messages: list[JournalMessage]) -> JournalMessage:
    assert len(messages) == 1, messages
    return messages[0]


def test_takes_no_more_than_fits() -> None:
    """Free slots bound what is taken; the reply names what was taken and what is still free (case E5)."""
    holdings = Holdings()
    assert holdings.worker.credits() == Credits(4, 400)
    reply = holdings.worker.take(grant(*(item(f"r{n}", sequence=n) for n in range(6))))
    assert reply.taken == [0, 1, 2, 3]
    assert reply.credits == Credits(0, 400 - 4 * 11)
    assert len(holdings.engine.added) == 4


def test_kv_cache_bounds_what_is_taken() -> None:
    """A ticket that needs more KV cache than is free stays with its scheduler; a smaller one behind it is taken."""
    holdings = Holdings(replace(FACTS, kv_tokens=80))
    first, large, small = (
        item("a", sequence=1, prompt=[1] * 40),
        item("b", sequence=2, prompt=[1] * 40),
        item("c", sequence=3),
    )
    assert holdings.worker.take(grant(first, large, small)).taken == [1, 3]


def test_an_answer_that_outgrows_its_reserve_takes_blocks() -> None:
    """Behind the reserve there is never less set aside for it than it has, and less than a block more."""
    holdings = Holdings()
    holdings.worker.take(grant(item(max_tokens=60)))
    free = holdings.worker.credits().kv_tokens
    assert free == 400 - 3 - 10
    for produced in range(1, 50):
        holdings.step(Advance(NAME, [5]))
        used = 400 - holdings.worker.credits().kv_tokens
        assert used == 13 if produced <= 10 else 3 + produced <= used < 3 + produced + FACTS.block_size
    holdings.step(Advance(NAME, [5], finish="length"))
    assert holdings.worker.credits().kv_tokens == 400


def test_generated_ids_reach_the_journal_at_their_offset() -> None:
    """Ids of a resumed answer start where the last attempt ended; the last message has finish and times."""
    holdings = Holdings()
    holdings.worker.take(grant(item(ids=[7, 8, 9], partition=2)))
    assert holdings.engine.added[0].context == [1, 2, 3, 7, 8, 9]
    holdings.step(Advance(NAME, [20], [TokenLogprob(-0.5)], cached_tokens=4, scheduled_at=100.05))
    holdings.step(Advance(NAME, [2], [TokenLogprob(-0.1)], finish="stop", stop_id=2))
    tokens = one_of(holdings.store()).tokens[0]
    assert (tokens.key, tokens.choice, tokens.attempt, tokens.offset, tokens.ids) == ("t.r", 0, 10, 3, [20, 2])
    assert (tokens.finish, tokens.stop_id) == ("stop", 2)
    assert tokens.logprobs == [TokenLogprob(-0.5), TokenLogprob(-0.1)]
    assert tokens.times is not None
    assert tokens.times.cached_tokens == 4
    assert tokens.times.scheduled == pytest.approx(0.05)
    assert tokens.times.first_token == pytest.approx(0.1)
    assert tokens.times.finished == pytest.approx(0.2)
    assert holdings.engine.outcomes == [("t.r", "stop")]
    status = holdings.worker.status(1)
    assert (status.tokens_in, status.tokens_out) == (2, 2)


def test_held_until_the_journal_has_the_finish() -> None:
    """The slot is free when the engine is done; the ticket is held, and kept alive, until the journal has it all."""
    holdings = Holdings()
    taken(holdings, "r")
    holdings.step(Advance(NAME, [5], finish="length"))
    assert holdings.worker.credits().slots == 4
    assert holdings.worker.status(1).held == [1]
    holdings.store()
    assert holdings.worker.status(2).held == []


def test_what_the_journal_does_not_take_is_bounded() -> None:
    """Finished answers that pile up cost slots in the end: no more than twice the slots are ever held."""
    holdings = Holdings()
    for number in range(20):
        reply = holdings.worker.take(grant(item(f"r{number}", sequence=number, attempt=number)))
        if reply.taken:
            holdings.step(Advance(f"t.r{number}/0/{number}", [5], finish="length"))
    assert len(holdings.worker.held) == 8
    assert holdings.worker.credits().slots == 0
    holdings.store()
    assert holdings.worker.credits().slots == 4


def test_a_blocked_or_draining_worker_takes_nothing() -> None:
    """No credits, and a grant that comes all the same is refused."""
    holdings = Holdings()
    assert holdings.worker.credits(blocked=True) == Credits(0, 0)
    assert holdings.worker.take(grant(item()), blocked=True).taken == []
    holdings.worker.state = "draining"
    assert holdings.worker.take(grant(item())).taken == []
    assert holdings.worker.status(1).credits == Credits(0, 0)


def test_the_same_grant_twice() -> None:
    """A grant that is repeated is answered as before and computed once."""
    holdings = Holdings()
    taken(holdings, "r")
    assert holdings.worker.take(grant(item())).taken == [1]
    assert len(holdings.engine.added) == 1


def test_a_newer_attempt_takes_the_place_of_an_older() -> None:
    """The older attempt is stopped without a word, the newer one runs; a late grant of the older changes nothing."""
    holdings = Holdings()
    taken(holdings, "r")
    holdings.step(Advance(NAME, [5]))
    assert holdings.worker.take(grant(item(attempt=12, ids=[5]))).taken == [1]
    assert holdings.engine.aborted == [NAME]
    holdings.step(Advance(NAME, [6]), Advance("t.r/0/12", [6]))
    assert [(one.attempt, one.offset, one.ids) for one in one_of(holdings.store()).tokens] == [(12, 1, [6])]
    assert holdings.worker.take(grant(item(attempt=10))).taken == [1]
    assert len(holdings.engine.added) == 2


def test_cancelled_before_it_came() -> None:
    """A grant of a cancelled request stays with the scheduler, which knows of the cancel as well (case E9)."""
    holdings = Holdings(cancelled=lambda key: key == "t.gone")
    assert holdings.worker.take(grant(item("gone", sequence=1), item("r", sequence=2))).taken == [2]


def test_cancelled_while_it_runs() -> None:
    """Every choice of the request stops in the engine, and nothing of it is written (cases C8, E9)."""
    holdings = Holdings()
    holdings.worker.take(grant(item(sequence=1), item(sequence=2, choice=1, attempt=11), item("other", sequence=3)))
    holdings.step(Advance(NAME, [5]))
    holdings.worker.cancel("t.r")
    assert holdings.engine.aborted == [NAME, "t.r/1/11"]
    holdings.step(Advance(NAME, [6], finish="length"))
    assert holdings.store() == []
    assert holdings.worker.status(1).held == [3]


def test_dropped_attempts() -> None:
    """The owner drops an attempt: it stops; another attempt of the same request goes on."""
    holdings = Holdings()
    taken(holdings, "r", "other")
    holdings.worker.drop([DropItem("t.r", 0, 9), DropItem("t.unknown", 0, 1)])
    assert holdings.engine.aborted == []
    holdings.worker.drop([DropItem("t.r", 0, 10)])
    assert holdings.engine.aborted == [NAME]
    assert holdings.worker.status(1).held == [2]


def test_past_its_deadline_on_arrival() -> None:
    """It is taken and ended, never computed: the journal gets an end with the ticket's ack (cases E13, C20)."""
    holdings = Holdings()
    assert holdings.worker.take(grant(item(stored_at=holdings.unix - 60))).taken == [1]
    assert holdings.engine.added == []
    end = one_of(holdings.store()).ends[0]
    assert (end.key, end.fault.code, end.ack, end.attempt, end.session) == ("t.r", "deadline", "ack.1", 10, "s")
    assert end.encoding == "json"
    assert holdings.worker.status(1).held == []


def test_runs_into_its_deadline() -> None:
    """What was generated so far is written, then the end; the engine stops."""
    holdings = Holdings()
    taken(holdings, "r")
    holdings.step(Advance(NAME, [5]))
    holdings.unix += 59
    holdings.worker.expire()
    assert holdings.engine.aborted == []
    holdings.unix += 1
    holdings.worker.expire()
    assert holdings.engine.aborted == [NAME]
    message = one_of(holdings.store())
    assert [one.ids for one in message.tokens] == [[5]]
    assert [one.fault.code for one in message.ends] == ["deadline"]


def test_the_engines_error_ends_one_request() -> None:
    """An error of the engine for one request becomes its `internal` fault; the neighbour goes on (case E7)."""
    holdings = Holdings()
    taken(holdings, "r", "other")
    holdings.step(Advance(NAME, [], error="ValueError: no"), Advance("t.other/0/10", [5]))
    message = one_of(holdings.store())
    assert [(one.key, one.fault.code) for one in message.ends] == [("t.r", "internal")]
    assert "ValueError: no" in message.ends[0].fault.message
    assert [one.key for one in message.tokens] == ["t.other"]


def test_nothing_that_kills_an_engine_reaches_it() -> None:
    """A token id outside the vocabulary ends that request with a fault that names it (cases A8, E7)."""
    holdings = Holdings()
    assert holdings.worker.take(grant(item(prompt=[1, 1000]))).taken == [1]
    assert holdings.engine.added == []
    end = one_of(holdings.store()).ends[0]
    assert end.fault.code == "internal"
    assert "1000" in end.fault.message


def test_an_answer_that_was_complete_already() -> None:
    """All tokens are there, only the finish was lost with the last worker: it is written, nothing is computed."""
    holdings = Holdings()
    holdings.worker.take(grant(item(ids=[5] * 8)))
    assert holdings.engine.added == []
    tokens = one_of(holdings.store()).tokens[0]
    assert (tokens.offset, tokens.ids, tokens.finish) == (8, [], "length")


def test_release_hands_back_what_is_not_finished() -> None:
    """Ids so far, then `released` for what runs; what is finished but not stored stays a finish (case E4)."""
    holdings = Holdings()
    taken(holdings, "r", "done")
    holdings.step(Advance(NAME, [5]), Advance("t.done/0/10", [6], finish="length"))
    assert holdings.worker.release_all() == 1
    assert holdings.engine.aborted == [NAME]
    message = one_of(holdings.store())
    assert [(one.key, one.attempt) for one in message.released] == [("t.r", 10)]
    assert [(one.key, one.ids, one.finish) for one in message.tokens] == [
        ("t.r", [5], ""),
        ("t.done", [6], "length"),
    ]
    assert holdings.worker.status(1).held == []


def test_forgets_without_a_word() -> None:
    """After it was cut off for too long, others hold it all: nothing is written, the engine is empty."""
    holdings = Holdings()
    taken(holdings, "r", "other")
    holdings.step(Advance(NAME, [5]))
    assert holdings.worker.forget_all() == 2
    assert sorted(holdings.engine.aborted) == ["t.other/0/10", NAME]
    assert holdings.store() == []
    assert holdings.worker.credits() == Credits(4, 400)


def test_a_step_of_something_unknown() -> None:
    """What a step under way still brings of something that is gone is ignored."""
    holdings = Holdings()
    holdings.step(Advance("t.never/0/1", [5]), Advance("t.never/0/2", [], error="no"))
    assert holdings.store() == []


def test_started_is_ended() -> None:
    """However choices end, each has one outcome, and slots and KV cache are all free again (case E12)."""
    holdings = Holdings()
    taken(holdings, "a", "b", "c", "d")
    holdings.step(Advance("t.a/0/10", [5], finish="length"))
    holdings.worker.cancel("t.b")
    holdings.worker.drop([DropItem("t.c", 0, 10)])
    holdings.worker.release_all()
    holdings.store()
    holdings.worker.take(grant(item("e", sequence=9, stored_at=0.0)))
    holdings.store()
    assert sorted(holdings.engine.outcomes) == [
        ("t.a", "length"),
        ("t.b", "cancelled"),
        ("t.c", "dropped"),
        ("t.d", "released"),
        ("t.e", "deadline"),
    ]
    assert holdings.worker.credits() == Credits(4, 400)
    assert holdings.worker.running == 0


def test_heartbeat_says_what_schedulers_need() -> None:
    """State, credits, what is held, the engine's size and load."""
    holdings = Holdings()
    taken(holdings, "a", "b")
    status = holdings.worker.status(7, waiting=1, step_s=0.02)
    assert (status.worker, status.model, status.state, status.sent) == ("w", "m", "ready", 7)
    assert (status.max_slots, status.kv_capacity, status.step_tokens) == (4, 400, 64)
    assert (status.running, status.waiting, status.step_s, status.held) == (2, 1, 0.02, [1, 2])
    assert status.credits == Credits(2, 400 - 2 * 11)
