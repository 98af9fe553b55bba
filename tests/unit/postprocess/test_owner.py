"""The owner of a partition: what it makes of each kind of journal entry."""

import asyncio

import pytest

from broker.connection import Unavailable
from broker.subjects import result as result_subject
from schemas.codec import pack_ids
from schemas.faults import Fault
from schemas.journal import End, JournalMessage, TokenLogprob, Tokens, WorkerTimes
from schemas.result import Result, TicketRef, Usage
from schemas.ticket import AnswerSpec, EngineSampling, StageTime
from stages.postprocess.intake import LOGPROBS_PER_RESULT, TOKENS_PER_RESULT
from stages.postprocess.spec import Spec
from tests.t256 import IM_END
from tests.unit.postprocess.world import KEY, PARTITION, SESSION, WORKER, World

DEADLINE = Fault("deadline", "too late")


@pytest.fixture
def world() -> World:
    return World()


def end(fault: Fault = DEADLINE, key: str = KEY, *, ack: str = "", attempt: int = 0, choice: int = 0) -> End:
    return End(key=key, choice=choice, session=SESSION, fault=fault, ack=ack, attempt=attempt)


async def opened(world: World, key: str = KEY, **ticket: object) -> int:
    """The attempt of a fresh request that is open."""
    record = world.opens(world.ticket_for(key, **ticket), key)  # type: ignore[arg-type]
    await world.work(record)
    return record.sequence


async def test_a_request_from_open_to_end(world: World) -> None:
    """Text as it comes, then one terminal result with usage; the ticket is acknowledged with it, nobody is dropped."""
    attempt = await opened(world)
    assert [result.terminal for result in world.results.of(KEY)] == [False]
    first = await world.work(world.tokens(attempt, 0, b"hel"))
    assert (first.text, first.effects.acks) == ("hel", [])
    last = await world.work(world.tokens(attempt, 3, [*b"lo", IM_END], finish="stop", stop_id=IM_END))
    (terminal,) = last.stored
    assert (terminal.text, terminal.finish, terminal.stop_reason) == ("lo", "stop", None)
    assert (terminal.token_from, terminal.token_to, terminal.text_from, terminal.at) == (3, 6, 3, 3)
    assert terminal.usage == Usage(prompt_tokens=3, completion_tokens=6)
    assert (last.effects.acks, last.drops) == (["ack.100"], [])
    assert world.assembled().text == "hello"
    assert world.measures.outcomes == ["stop"]
    assert world.measures.token_count == 6


async def test_results_go_to_the_request_s_subject_in_its_encoding(world: World) -> None:
    """A request in JSON has its results in JSON; a terminal one has a message id of its own."""
    record = world.opens(world.ticket_for(answer=AnswerSpec(encoding="json")))
    effects = await world.owner.work([record, world.tokens(1, 0, b"a", finish="length")])
    (outgoing,) = effects.results
    assert outgoing.subject == result_subject(PARTITION, "acme", SESSION, "r1")
    assert (outgoing.content_type, outgoing.message_id) == ("application/json", "acme.r1.0.end")
    assert outgoing.data.startswith(b"{")


async def test_what_waits_becomes_one_result(world: World) -> None:
    """Under backlog all waiting tokens of a request are one result, and each request has its own."""
    attempt, other = await opened(world), await opened(world, "acme.r2")
    outcome = await world.work(
        *(world.tokens(attempt, offset, b"x") for offset in range(5)), world.tokens(other, 0, b"y", "acme.r2")
    )
    assert [(result.text, result.token_to) for result in outcome.stored] == [("xxxxx", 5), ("y", 1)]


async def test_ids_without_text_stand_in_a_result(world: World) -> None:
    """The journal is purged behind every round: half a character, half a stop string are told as ids."""
    attempt = await opened(world, answer=AnswerSpec(stop=["END"]))
    outcome = await world.work(world.tokens(attempt, 0, b"E"))
    assert [(result.text, result.ids) for result in outcome.stored] == [("", [0x45])]


async def test_a_stop_string_ends_the_request_upstream_too(world: World) -> None:
    """A13: finish `stop`, usage up to the match, and the worker is told to drop the rest."""
    attempt = await opened(world, answer=AnswerSpec(stop=["\n\n"]))
    outcome = await world.work(world.tokens(attempt, 0, b"a\n\nbbb"))
    (terminal,) = outcome.stored
    assert (terminal.text, terminal.finish, terminal.stop_reason) == ("a", "stop", "\n\n")
    assert terminal.usage == Usage(prompt_tokens=3, completion_tokens=3)
    assert (outcome.drops, outcome.effects.acks) == ([(WORKER, KEY, attempt)], ["ack.100"])


async def test_a_stop_string_in_the_last_tokens_drops_nobody(world: World) -> None:
    """C9: the worker is done already."""
    attempt = await opened(world, answer=AnswerSpec(stop=["b"]))
    outcome = await world.work(world.tokens(attempt, 0, b"ab", finish="length"))
    assert (outcome.stored[-1].finish, outcome.drops) == ("stop", [])


async def test_a_named_stop_token_is_the_stop_reason(world: World) -> None:
    """A18: an id of stop_token_ids is named, EOS is not; neither is text."""
    attempt = await opened(world, sampling=EngineSampling(max_tokens=9, stop_token_ids=[0x58]))
    outcome = await world.work(world.tokens(attempt, 0, b"aX", finish="stop", stop_id=0x58))
    assert (outcome.text, outcome.stored[-1].stop_reason) == ("a", 0x58)


async def test_nothing_after_the_end_counts(world: World) -> None:
    """Exactly one terminal result; late tokens cost no lookup, their worker is told once, and again after a second."""
    attempt = await opened(world)
    await world.work(world.tokens(attempt, 0, b"a", finish="length"))
    world.lookups.clear()
    assert (await world.work(world.tokens(attempt, 1, b"b"))).drops == [(WORKER, KEY, attempt)]
    assert (await world.work(world.tokens(attempt, 2, b"c"), world.ends(end()))).drops == []
    world.now += 1.5
    assert (await world.work(world.tokens(attempt, 3, b"d"))).drops == [(WORKER, KEY, attempt)]
    assert world.lookups == []
    assert [result.terminal for result in world.results.of(KEY)] == [False, True]


# Attempts


async def test_the_ticket_that_comes_again_goes_on_where_the_answer_stands(world: World) -> None:
    """The reply has all ids so far, in journal order; a marker without text makes the attempt survive the owner."""
    first = await opened(world)
    await world.work(world.tokens(first, 0, b"ab"))
    again = world.opens(100, fresh=False)
    outcome = await world.work(world.tokens(first, 2, b"c"), again, world.tokens(first, 3, b"Z"))
    assert outcome.effects.replies[0][0] == f"inbox.{again.sequence}"
    assert (outcome.reply.attempt, outcome.reply.ids) == (again.sequence, pack_ids(list(b"abc")))
    assert [(result.text, result.attempt) for result in outcome.stored] == [("c", first), ("", again.sequence)]
    assert outcome.stored[-1].ticket == TicketRef(100, "ack.100")
    assert outcome.drops == [(WORKER, KEY, first)]
    outcome = await world.work(world.tokens(again.sequence, 3, b"d", finish="length", worker="w2"))
    assert world.assembled().text == "abcd"
    assert outcome.drops == []


async def test_a_second_fresh_open_wins_while_there_are_no_ids(world: World) -> None:
    """Delivered twice within a moment: the latest counts, the first one's worker is dropped."""
    first, second = await opened(world), world.opens(100)
    assert (await world.work(second)).drops == [(WORKER, KEY, first)]
    await world.work(world.tokens(second.sequence, 0, b"ok", finish="length"))
    assert world.assembled().text == "ok"


async def test_a_fresh_open_of_an_answer_that_has_begun_is_void(world: World) -> None:
    """Its worker is dropped, the attempt goes on; the ticket is not acknowledged, for it is the only one."""
    attempt = await opened(world)
    await world.work(world.tokens(attempt, 0, b"a"))
    late = world.opens(100)
    outcome = await world.work(late)
    assert (outcome.drops, outcome.effects.acks, outcome.stored) == ([(WORKER, KEY, late.sequence)], [], [])
    await world.work(world.tokens(attempt, 1, b"b", finish="length"))
    assert world.assembled().text == "ab"


async def test_of_two_tickets_of_one_request_one_is_kept(world: World) -> None:
    """Submitted twice, beyond the message id's window: the other ticket is acknowledged away."""
    attempt = await opened(world)
    second = world.ticket_for()
    outcome = await world.work(world.opens(second))
    assert outcome.effects.acks == ["ack.100"]
    await world.work(world.tokens(attempt + 1, 0, b"a"))
    third = world.ticket_for()
    assert (await world.work(world.opens(third))).effects.acks == [f"ack.{third}"]
    outcome = await world.work(world.tokens(attempt + 1, 1, b"b", finish="length"))
    assert (world.assembled().text, outcome.effects.acks) == ("ab", [f"ack.{second}"])


@pytest.mark.parametrize("remembered", [True, False])
async def test_an_open_of_an_ended_request_only_settles_its_ticket(world: World, remembered: bool) -> None:
    """Fresh: dropped; not fresh: told that it has ended. By memory, and by the stored results alone."""
    attempt = await opened(world)
    await world.work(world.tokens(attempt, 0, b"a", finish="length"))
    if not remembered:
        world.owner = world.new_owner()
    fresh = world.opens(100)
    outcome = await world.work(fresh)
    assert (outcome.effects.acks, outcome.drops) == (["ack.100"], [(WORKER, KEY, fresh.sequence)])
    outcome = await world.work(world.opens(100, fresh=False))
    assert (outcome.effects.acks, outcome.reply.ended, outcome.stored) == (["ack.100"], True, [])


async def test_a_request_whose_ticket_is_gone_is_answered(world: World) -> None:
    """Nobody can go on with it: its client hears so, its scheduler forgets it."""
    outcome = await world.work(world.opens(55, fresh=False))
    (terminal,) = outcome.stored
    assert terminal.fault is not None
    assert (terminal.fault.code, outcome.reply.ended, outcome.effects.acks) == ("lost_state", True, ["ack.55"])


async def test_ids_that_came_before_are_taken_once(world: World) -> None:
    """A worker repeats what was not acknowledged to it."""
    attempt = await opened(world)
    await world.work(world.tokens(attempt, 0, b"abc"))
    await world.work(world.tokens(attempt, 0, b"abc"), world.tokens(attempt, 1, b"bcde", finish="length"))
    assert world.assembled().text == "abcde"


async def test_a_gap_ends_the_request(world: World) -> None:
    """Never a hole in the text."""
    attempt = await opened(world)
    outcome = await world.work(world.tokens(attempt, 0, b"a"), world.tokens(attempt, 2, b"c"))
    assert outcome.text == "a"
    assert outcome.stored[-1].fault is not None
    assert outcome.stored[-1].fault.code == "lost_state"
    assert outcome.drops == [(WORKER, KEY, attempt)]


# Ends, releases


async def test_a_fault_lets_out_what_came_before_it(world: World) -> None:
    """C4: three tokens, then a failure, in one round: the text first, then the fault, with usage."""
    attempt = await opened(world, answer=AnswerSpec(stop=["xyz"]))
    failure = end(Fault("internal", "engine failed"), attempt=attempt)
    outcome = await world.work(world.tokens(attempt, 0, b"abx"), world.ends(failure, origin=WORKER))
    piece, terminal = outcome.stored
    assert (piece.text, piece.terminal) == ("abx", False)
    assert (terminal.fault, terminal.finish, terminal.text) == (failure.fault, "", "")
    assert terminal.usage == Usage(prompt_tokens=3, completion_tokens=3)
    assert (outcome.effects.acks, outcome.drops) == (["ack.100"], [])


async def test_an_end_by_somebody_else_drops_the_worker(world: World) -> None:
    """A cancel, a deadline: whoever runs it is told; all tickets that are held are acknowledged."""
    attempt = await opened(world)
    outcome = await world.work(world.ends(end(ack="ack.other")))
    assert outcome.effects.acks == ["ack.100", "ack.other"]
    assert outcome.drops == [(WORKER, KEY, attempt)]


async def test_an_end_of_another_attempt_is_none(world: World) -> None:
    """The worker of an attempt that does not count any more failed: nobody cares."""
    first = await opened(world)
    second = world.opens(100, fresh=False)
    await world.work(second)
    assert (await world.work(world.ends(end(attempt=first)))).stored == []
    assert (await world.work(world.ends(end(attempt=second.sequence)))).stored[-1].fault == DEADLINE


async def test_an_end_is_idempotent_and_always_settles_its_ticket(world: World) -> None:
    """C8: a cancel by two stages is one terminal result."""
    await opened(world)
    await world.work(world.ends(end()))
    outcome = await world.work(world.ends(end(ack="ack.late")), world.ends(end()))
    assert (outcome.stored, outcome.effects.acks) == ([], ["ack.late"])


async def test_a_request_that_was_never_opened_is_answered(world: World) -> None:
    """Refused in preprocess: the end itself says where and how."""
    refused = End(
        key="acme.r9",
        choice=1,
        session="s9",
        fault=Fault("invalid_request", "must be text", "messages[0]"),
        encoding="json",
        ack="ack.9",
    )
    effects = await world.owner.work([world.ends(refused)])
    (outgoing,) = effects.results
    assert outgoing.subject == result_subject(PARTITION, "acme", "s9", "r9")
    assert (outgoing.content_type, outgoing.message_id, effects.acks) == (
        "application/json",
        "acme.r9.1.end",
        ["ack.9"],
    )
    assert world.results.store(effects.results)[0].fault == refused.fault
    assert (await world.work(world.opens(world.ticket_for("acme.r9", 1), "acme.r9", 1))).stored == []


async def test_what_a_worker_hands_back_goes_to_others_at_once(world: World) -> None:
    """Only in the valid attempt: a stale NAK would take the ticket from whoever runs it now."""
    first = await opened(world)
    assert (await world.work(world.released(first))).effects.naks == ["ack.100"]
    await world.work(world.opens(100, fresh=False))
    assert (await world.work(world.released(first))).effects.naks == []


# What goes wrong


async def test_an_impossible_id_ends_that_request_alone(world: World) -> None:
    """A8: an internal error that names the id; the other request of the same message goes on."""
    attempt, other = await opened(world), await opened(world, "acme.r2")
    message = JournalMessage(
        origin=WORKER,
        tokens=[
            Tokens(key=KEY, choice=0, attempt=attempt, offset=0, ids=[61, 300, 62]),
            Tokens(key="acme.r2", choice=0, attempt=other, offset=0, ids=[0x6F, 0x6B]),
        ],
    )
    outcome = await world.work(world.append(message))
    terminal, going_on = outcome.stored
    assert terminal.fault is not None
    assert (terminal.fault.code, "300" in terminal.fault.message) == ("internal", True)
    assert going_on.text == "ok"
    assert outcome.drops == [(WORKER, KEY, attempt)]
    assert outcome.effects.acks == ["ack.100"]


async def test_a_model_without_a_tokenizer_ends_its_requests(world: World) -> None:
    """An internal error that says so, not a partition that waits."""
    outcome = await world.work(world.opens(world.ticket_for(model="other", answer=AnswerSpec(encoding="json"))))
    assert outcome.stored[0].fault is not None
    assert "other" in outcome.stored[0].fault.message
    assert outcome.effects.results[0].content_type == "application/json"
    assert outcome.effects.acks == ["ack.100"]


async def test_an_undecodable_message_is_skipped(world: World) -> None:
    """Whoever misses its tokens has a gap; the others do not."""
    attempt = await opened(world)
    await world.work(world.append(None), world.tokens(attempt, 0, b"a", finish="length"))
    assert world.assembled().text == "a"


async def test_tokens_of_nobody_are_dropped(world: World) -> None:
    """No request behind them, no place to answer: looked up once."""
    assert (await world.work(world.tokens(7, 4, b"x"))).drops == [(WORKER, KEY, 7)]
    world.lookups.clear()
    assert (await world.work(world.tokens(7, 5, b"x"))).stored == []
    assert world.lookups == []
    await opened(world)
    assert len(world.results.of(KEY)) == 1


async def test_a_round_looks_everything_up_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories and tickets of all its unknown requests are in flight together."""
    records = [world.opens(world.ticket_for(f"acme.r{number}"), f"acme.r{number}") for number in range(3)]
    together = asyncio.Barrier(6)
    history, ticket = world.history, world.ticket

    async def slow_history(key: str, session: str) -> list[Result]:
        await together.wait()
        return await history(key, session)

    async def slow_ticket(sequence: int) -> Spec | None:
        await together.wait()
        return await ticket(sequence)

    monkeypatch.setattr(world, "history", slow_history)
    monkeypatch.setattr(world, "ticket", slow_ticket)
    async with asyncio.timeout(2):
        await world.work(*records)
    assert world.owner.open_count == 3


async def test_a_round_can_be_tried_again(world: World) -> None:
    """The broker is away while the owner looks something up: nothing has changed."""
    record = world.opens(world.ticket_for())
    world.broken = Unavailable("away")
    with pytest.raises(Unavailable):
        await world.work(record)
    world.broken = None
    assert len((await world.work(record)).stored) == 1


@pytest.mark.parametrize(("with_logprobs", "limit"), [(False, TOKENS_PER_RESULT), (True, LOGPROBS_PER_RESULT)])
async def test_a_backlog_goes_into_results_that_fit(world: World, with_logprobs: bool, limit: int) -> None:
    """However much waits; a piece that holds a part of an entry does not claim the whole of it."""
    logprobs = 0 if with_logprobs else None
    attempt = await opened(world, sampling=EngineSampling(max_tokens=9999, logprobs=logprobs))
    count = 2 * limit + 5
    entries = [TokenLogprob(-1.0)] * count if with_logprobs else None
    record = world.tokens(attempt, 0, b"x" * count, logprobs=entries)
    outcome = await world.work(record)
    assert [len(result.ids) for result in outcome.stored] == [limit, limit, 5]
    assert [result.at for result in outcome.stored] == [record.sequence - 1, record.sequence - 1, record.sequence]


async def test_a_result_that_does_not_fit_ends_its_request(world: World) -> None:
    """Nothing that the broker would refuse reaches it."""
    world.owner = world.new_owner(max_result_bytes=300)
    attempt = await opened(world)
    outcome = await world.work(world.tokens(attempt, 0, b"x" * 400))
    assert [result.fault.code for result in outcome.stored if result.fault] == ["internal"]


async def test_costs_of_every_stage(world: World) -> None:
    """The terminal result tells what each stage took; TTFT counts from the request's own time stamp."""
    attempt = await opened(world)
    world.now += 0.5
    await world.work(world.tokens(attempt, 0, b"a"))
    times = WorkerTimes(scheduled=0.1, first_token=0.2, finished=0.6, cached_tokens=2, schedule=StageTime(0.003, 0.004))
    world.now += 0.4
    outcome = await world.work(world.tokens(attempt, 1, b"bc", finish="length", times=times))
    costs, usage = outcome.stored[-1].costs, outcome.stored[-1].usage
    assert costs is not None
    assert usage is not None
    assert (costs.preprocess, costs.schedule) == (StageTime(0.001, 0.002), StageTime(0.003, 0.004))
    assert (costs.inference.queued, costs.inference.service) == pytest.approx((0.1, 0.5))
    assert (costs.ttft, costs.itl, usage.cached_tokens) == (pytest.approx(1.0), pytest.approx(0.2), 2)
    assert costs.postprocess.queued == pytest.approx(0.01)
    assert 0 < costs.postprocess.service < 0.1
    assert world.measures.ttfts == [pytest.approx(1.0)]


async def test_choices_of_one_request_are_apart(world: World) -> None:
    """n = 2: each choice has its own tokens and its own end."""
    for choice in (0, 1):
        await world.work(world.opens(world.ticket_for(choice=choice), choice=choice))
    assert world.owner.open_choices(KEY) == [0, 1]
    await world.work(
        world.tokens(1, 0, b"zero", choice=0, finish="length"), world.tokens(2, 0, b"one", choice=1, finish="length")
    )
    assert (world.assembled(choice=0).text, world.assembled(choice=1).text) == ("zero", "one")
