"""Schedulers miss a worker: what it runs is let go, also where the scheduler that granted it is gone as well."""

import pytest

from tests.unit.postprocess.world import KEY, WORKER, World


@pytest.fixture
def world() -> World:
    return World()


async def begun(world: World, key: str = KEY, *, worker: str = WORKER) -> int:
    """An answer of two tokens that runs on `worker`; its attempt."""
    record = world.opens(world.ticket_for(key), key)
    await world.work(record, world.tokens(record.sequence, 0, b"ab", key=key, worker=worker))
    return record.sequence


async def test_what_it_runs_goes_to_others_at_once(world: World) -> None:
    """All of it, and nothing of any other worker; no death is counted."""
    await begun(world)
    await begun(world, "acme.r2")
    await begun(world, "acme.r3", worker="elsewhere")
    outcome = await world.work(world.silent())
    assert outcome.effects.naks == ["ack.100", "ack.101"]
    reply = (await world.work(world.opens(100, fresh=False))).reply
    assert (len(reply.ids), reply.deaths) == (8, 0)


async def test_what_was_only_meant_for_it_stays(world: World) -> None:
    """A scheduler whose grant was refused still holds the ticket, and has another worker for it."""
    await world.work(world.opens(world.ticket_for()))
    assert (await world.work(world.silent())).effects.naks == []


async def test_every_scheduler_says_so(world: World) -> None:
    """A second NAK would take the ticket from whoever has it by then; the death is counted all the same."""
    attempt = await begun(world)
    assert (await world.work(world.silent())).effects.naks == ["ack.100"]
    assert (await world.work(world.silent())).effects.naks == []
    assert (await world.work(world.released(attempt, died=True))).effects.naks == []
    assert (await world.work(world.opens(100, fresh=False))).reply.deaths == 1


async def test_one_that_comes_back(world: World) -> None:
    """Its attempt stays the valid one until the next is opened, and may be let go again only after that."""
    attempt = await begun(world)
    await world.work(world.silent())
    outcome = await world.work(world.tokens(attempt, 2, b"c"), world.silent())
    assert (outcome.text, outcome.effects.naks) == ("c", [])
    reopened = world.opens(100, fresh=False)
    await world.work(reopened, world.tokens(reopened.sequence, 3, b"d"))
    assert (await world.work(world.silent())).effects.naks == ["ack.100"]
