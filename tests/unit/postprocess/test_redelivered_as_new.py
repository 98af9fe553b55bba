"""A broker that died right after a fetch hands a ticket out as if for the first time: it is granted as fresh."""

import pytest

from tests.unit.postprocess.world import KEY, WORKER, World


@pytest.fixture
def world() -> World:
    return World()


async def begun(world: World, *, worker: str) -> None:
    """An answer that has begun on `worker`."""
    record = world.opens(world.ticket_for())
    await world.work(record, world.tokens(record.sequence, 0, b"ab", worker=worker))


async def test_granted_to_the_worker_that_runs_it(world: World) -> None:
    """The grant takes the place of the valid attempt there, and is dropped: the ticket goes to the next one at once."""
    await begun(world, worker=WORKER)
    again = world.opens(100)
    outcome = await world.work(again)
    assert outcome.drops == [(WORKER, KEY, again.sequence)]
    assert (outcome.effects.naks, outcome.effects.acks) == (["ack.100"], [])
    reply = (await world.work(world.opens(100, fresh=False))).reply
    assert (reply.attempt, len(reply.ids)) == (again.sequence + 1, 8)


async def test_granted_to_another_worker(world: World) -> None:
    """The valid attempt goes on where it runs: only the new one is dropped, and the ticket stays where it is."""
    await begun(world, worker="elsewhere")
    again = world.opens(100)
    outcome = await world.work(again)
    assert outcome.drops == [(WORKER, KEY, again.sequence)]
    assert (outcome.effects.naks, outcome.effects.acks) == ([], [])


async def test_granted_after_it_was_handed_back(world: World) -> None:
    """Nobody runs it, and the broker has forgotten that it was handed back: it goes to the next one at once."""
    record = world.opens(world.ticket_for())
    await world.work(record, world.tokens(record.sequence, 0, b"ab"), world.released(record.sequence))
    outcome = await world.work(world.opens(100))
    assert (outcome.effects.naks, outcome.effects.acks) == (["ack.100"], [])
