"""Workers, schedulers and the broker die."""

import asyncio

from broker.server import EmbeddedServer
from broker.topology import TopologySettings
from schemas.journal import OpenReply
from tests.integration.schedule.conftest import World
from tests.integration.schedule.peers import FakeOwner, never, until


async def answering(world: World) -> FakeOwner:
    """An owner that knows of no ids."""
    owner = await world.owner()
    owner.answer = lambda _: OpenReply(0)
    return owner


async def test_two_schedulers_never_overfill_a_worker(world: World) -> None:
    """Side by side, each with its own view of the credits: the worker's reply decides. All tickets run, each once."""
    owner = await answering(world)
    workers = [await world.worker(f"w{number}", slots=4, work_s=0.03) for number in range(3)]
    schedulers = [await world.scheduler(), await world.scheduler()]
    await asyncio.sleep(0.6)
    sequences = await asyncio.gather(*(world.submit(f"r{number}") for number in range(200)))

    done = lambda: sum(len(worker.granted_at) for worker in workers) == 200 and not any(w.held for w in workers)  # noqa: E731
    await until(done, 20)
    assert max(worker.most_held for worker in workers) <= 4
    assert sorted(sequence for worker in workers for sequence in worker.granted_at) == sorted(sequences)
    assert owner.opened_more_than_once == []
    by_scheduler = {grant.scheduler for worker in workers for grant in worker.grants}
    assert by_scheduler == {one.context.instance for one in schedulers}
    await asyncio.sleep(0.2)
    assert await world.tickets_left() == 0


async def test_the_tickets_of_a_silent_worker_go_to_another_at_once(world: World) -> None:
    """About two seconds after its last heartbeat, although the ack wait is fifteen; the others keep theirs."""
    owner = await answering(world)
    victim = await world.worker("victim", slots=3)
    await world.scheduler()
    sequences = [await world.submit(f"r{number}") for number in range(3)]
    await until(lambda: len(victim.held) == 3)
    other = await world.worker("other", slots=8)
    kept = await world.submit("kept")
    await until(lambda: kept in other.held)

    died = asyncio.get_running_loop().time()
    await victim.die()
    await until(lambda: set(sequences) <= set(other.held), 5)
    assert 1.0 < asyncio.get_running_loop().time() - died < 4.0
    assert all(len(owner.opens_of(sequence)) == 2 for sequence in sequences)
    assert len(owner.opens_of(kept)) == 1
    assert sorted(one.attempt for one in owner.released) == sorted(owner.attempts_of(one)[0] for one in sequences)
    assert {(one.died, one.worker) for one in owner.released} == {(True, "victim")}


async def test_what_a_silent_worker_had_not_begun_did_not_die(world: World) -> None:
    """Its last heartbeat says what it had parked, and that it was on its way out: no death is counted for those."""
    owner = await answering(world)
    workers = [await world.worker(name, slots=1) for name in ("parks", "drains")]
    await world.scheduler()
    for number in range(2):
        await world.submit(f"r{number}")
    await until(lambda: all(worker.held for worker in workers))
    workers[0].parked = list(workers[0].held)
    workers[1].state = "draining"
    for worker in workers:
        await worker.beat()
        await worker.die()
    await until(lambda: len(owner.released) == 2)
    assert [one.died for one in owner.released] == [False, False]


async def test_deaths_go_with_the_grant(world: World) -> None:
    """What the owner counted reaches the worker; a ticket that has to run alone goes to the idle one, by itself."""
    owner = await answering(world)
    owner.answer = lambda _: OpenReply(0, deaths=2)
    victim = await world.worker("victim", slots=1)
    await world.scheduler()
    alone = await world.submit("alone")
    await until(lambda: alone in victim.held)
    busy = await world.worker("busy", slots=9)
    await world.submit("neighbour")
    await until(lambda: bool(busy.held))
    idle = await world.worker("idle", slots=2)
    await victim.die()
    await until(lambda: alone in idle.held)
    assert [[item.deaths for item in grant.items] for grant in idle.grants] == [[2]]


async def test_a_draining_worker_gets_nothing(world: World) -> None:
    """Its credits do not count, whatever they are."""
    draining = await world.worker("draining", slots=8)
    draining.state = "draining"
    await draining.beat()
    await world.scheduler()
    await world.submit("a")
    await never(lambda: bool(draining.grants), 1.2)

    good = await world.worker("good", slots=1)
    await until(lambda: len(good.held) == 1)


async def test_a_lost_reply_leads_to_a_new_attempt(world: World) -> None:
    """The worker may have taken it: the ticket goes on under a new attempt that the owner has answered."""
    owner = await answering(world)
    mute = await world.worker("mute", slots=2)
    mute.answers = False
    await world.scheduler(grant_timeout_s=0.3)
    sequence = await world.submit("a")
    await until(lambda: len(mute.items) == 1)
    mute.state = "stalled"
    await mute.beat()
    good = await world.worker("good", slots=1)
    await until(lambda: sequence in good.held)

    first, second = owner.attempts_of(sequence)
    assert (mute.items[0].attempt, good.held[sequence].attempt) == (first, second)
    assert [one.fresh for one in owner.opens_of(sequence)] == [True, False]


async def test_a_scheduler_that_stops_hands_its_window_to_others_at_once(world: World) -> None:
    """Soft stop: what is held and not granted is with another scheduler in a moment; granted tickets stay put."""
    owner = await answering(world)
    worker = await world.worker("w1", slots=1)
    first = await world.scheduler()
    granted = await world.submit("granted")
    await until(lambda: granted in worker.held)
    waiting = [await world.submit(f"r{number}") for number in range(5)]
    await asyncio.sleep(0.3)
    await world.scheduler()
    await first.stop()

    bigger = await world.worker("w2", slots=8)
    await until(lambda: set(waiting) <= set(bigger.held), 3)
    await never(lambda: len(owner.opens_of(granted)) > 1, 0.5)


async def test_a_scheduler_that_dies_leaves_its_window_to_the_ack_wait(world: World) -> None:
    """Nobody says a word: the tickets come again to another scheduler, and what runs at a worker is not disturbed."""
    await world.make_streams(TopologySettings(partitions=3, ticket_ack_wait_s=2.0))
    owner = await answering(world)
    worker = await world.worker("w1", slots=1)
    first = await world.scheduler()
    granted = await world.submit("granted")
    await until(lambda: granted in worker.held)
    waiting = [await world.submit(f"r{number}") for number in range(3)]
    await asyncio.sleep(0.3)
    await first.die()
    await world.scheduler()

    bigger = await world.worker("w2", slots=8)
    await until(lambda: set(waiting) <= set(bigger.held), 6)
    assert len(owner.opens_of(granted)) == 1


async def test_the_broker_is_killed_and_comes_back(world: World, server: EmbeddedServer) -> None:
    """Nobody is judged for the silence, nothing that runs is started again, what was held goes on being granted.

    Nothing new is pulled for 3 s: workers have to get a sign of life for their tickets to the broker before.
    """
    owner = await answering(world)
    worker = await world.worker("w1", slots=2)
    scheduler = await world.scheduler()
    running = [await world.submit(f"running{number}") for number in range(2)]
    await until(lambda: len(worker.held) == 2)
    waiting = [await world.submit(f"waiting{number}") for number in range(3)]
    await asyncio.sleep(0.3)

    await server.kill()
    await asyncio.sleep(0.5)
    await server.restart()
    await until(lambda: scheduler.context.connection.connected and world.connection.connected, 10)
    bigger = await world.worker("w2", slots=8)
    late = await world.submit("late")
    await until(lambda: set(waiting) <= set(bigger.held), 2)
    await never(lambda: late in bigger.held, 1)
    await until(lambda: late in bigger.held, 10)
    assert sorted(worker.held) == running
    assert not set(running) & set(owner.opened_more_than_once)
