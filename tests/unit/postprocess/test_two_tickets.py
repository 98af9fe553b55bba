"""A request that was submitted twice has two tickets a choice: one is acknowledged away, the other one has to stay."""

import pytest

from schemas.journal import JournalMessage, Open, OpenReply
from tests.unit.postprocess.world import KEY, MODEL, SESSION, World


@pytest.fixture
def world() -> World:
    return World()


def fresh(sequence: int, worker: str) -> Open:
    return Open(
        key=KEY,
        choice=0,
        model=MODEL,
        session=SESSION,
        sequence=sequence,
        ack=f"ack.{sequence}",
        fresh=True,
        worker=worker,
    )


async def test_both_opened_in_one_message(world: World) -> None:
    """Both have the same attempt: the first counts, the other one's worker is told to stop, and its ticket goes."""
    first, second = world.ticket_for(), world.ticket_for()
    opens = [fresh(first, "w1"), fresh(second, "w2")]
    record = world.append(JournalMessage(origin="scheduler", opens=opens))
    outcome = await world.work(record)
    assert outcome.drops == [("w2", KEY, record.sequence)]
    assert outcome.effects.acks == [f"ack.{second}"]


async def test_the_one_that_was_acknowledged_opens_again(world: World) -> None:
    """It was on its way to a scheduler already: it does not take the place of the ticket that is left."""
    first, second = world.ticket_for(), world.ticket_for()
    await world.work(world.opens(first))
    assert (await world.work(world.opens(second))).effects.acks == [f"ack.{first}"]
    reopened = world.opens(first, fresh=False)
    outcome = await world.work(reopened)
    assert outcome.effects.acks == [f"ack.{first}"]
    assert outcome.reply == OpenReply(reopened.sequence, ended=True)
    attempt = (await world.work(world.opens(second, fresh=False))).reply.attempt
    assert (await world.work(world.tokens(attempt, 0, b"ab", finish="length"))).effects.acks == [f"ack.{second}"]


async def test_the_second_one_was_acknowledged(world: World) -> None:
    """The answer had begun when it came; delivered again, it does not take over either."""
    first, second = world.ticket_for(), world.ticket_for()
    begun = world.opens(first)
    await world.work(begun, world.tokens(begun.sequence, 0, b"ab"))
    assert (await world.work(world.opens(second))).effects.acks == [f"ack.{second}"]
    outcome = await world.work(world.opens(second, fresh=False))
    assert (outcome.effects.acks, outcome.reply.ended) == ([f"ack.{second}"], True)


async def test_an_end_is_known_as_long_as_its_result_is(world: World) -> None:
    """When the results are too old to be there, the same id is a new request."""
    opened = world.opens(world.ticket_for())
    await world.work(opened, world.tokens(opened.sequence, 0, b"ab", finish="length"))
    assert (await world.work(world.opens(world.ticket_for(), fresh=False))).reply.ended
    world.now += 1800
    assert (await world.work(world.opens(world.ticket_for(), fresh=False))).reply.ended
    world.now += 1800
    world.results.messages.clear()
    reply = (await world.work(world.opens(world.ticket_for(), fresh=False))).reply
    assert (reply.ended, reply.ids) == (False, b"")
