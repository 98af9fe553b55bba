"""Room for results: a partition close to its limit takes no new requests, and opens again only with some distance."""

import asyncio

import pytest
import structlog

from broker.connection import Unavailable
from broker.results import Filling
from stages.preprocess.room import PLENTY, SELDOM_S, ResultsRoom

LONGEST_S = 100.0


class World:
    """A stream of results for each partition, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.filling = Filling(0.0, 0.0)
        self.error: Exception | None = None
        self.looks: list[int] = []
        self.room = ResultsRoom(self.look, LONGEST_S, lambda: self.now)

    async def look(self, partition: int) -> Filling:
        await asyncio.sleep(0)
        self.looks.append(partition)
        if self.error is not None:
            raise self.error
        return self.filling

    async def later(self, part: float, oldest_s: float) -> bool:
        """Whether there is room once a second has passed and the stream is so full."""
        self.now += 1.0
        self.filling = Filling(part, oldest_s)
        return await self.room.has_room(0)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("part", "oldest_s", "room"),
    [
        (0.0, 0.0, True),
        (0.8, 1.0, True),
        (0.9, 1.0, False),
        (0.99, 99.0, False),
        (0.99, 101.0, True),
        (1.0, 0.0, False),
    ],
)
async def test_full_of_what_is_young(world: World, part: float, oldest_s: float, room: bool) -> None:
    """Closed where it is nearly full and its oldest result may be of an answer that still grows."""
    assert await world.later(part, oldest_s) is room
    assert world.room.closed == (not room)


async def test_it_opens_with_some_distance(world: World) -> None:
    """Once closed, neither a byte less nor a moment more opens it again: it does not flap."""
    assert not await world.later(0.9, 10)
    assert not await world.later(0.84, 11)
    assert await world.later(0.74, 12)
    assert await world.later(0.84, 13)
    assert not await world.later(0.9, 95)
    assert not await world.later(0.9, 105)
    assert await world.later(0.9, 111)


async def test_a_change_is_told_once(world: World) -> None:
    """The log has one line when it closes and one when it opens, not one a look."""
    with structlog.testing.capture_logs() as lines:
        for part in (0.9, 0.9, 0.9, 0.5, 0.5):
            await world.later(part, 1)
    assert [line["event"] for line in lines] == ["preprocess.results_full", "preprocess.results_have_room"]


async def test_a_second_of_requests_is_one_look(world: World) -> None:
    """However many requests come, also all at once, the broker is asked once a second and partition."""
    world.filling = Filling(0.9, 1)
    assert not any(await asyncio.gather(*(world.room.has_room(number % 2) for number in range(100))))
    assert sorted(world.looks) == [0, 1]
    world.now += 0.9
    assert not await world.room.has_room(0)
    assert len(world.looks) == 2


async def test_where_there_is_plenty_one_look_holds_for_longer(world: World) -> None:
    """Nobody fills it in that time; close to the limit it is every second again."""
    world.room = ResultsRoom(world.look, LONGEST_S, lambda: world.now, limit=10 * PLENTY)
    world.filling = Filling(0.5, 1)
    for _ in range(12):
        await world.room.has_room(0)
        world.now += 0.5
    assert len(world.looks) == 2
    world.filling = Filling(0.8, 1)
    world.now += SELDOM_S
    world.looks.clear()
    for _ in range(12):
        await world.room.has_room(0)
        world.now += 0.5
    assert len(world.looks) == 6


async def test_while_nobody_answers(world: World) -> None:
    """What was seen last holds, and the broker is not asked more often than otherwise."""
    world.error = Unavailable("away")
    assert await world.room.has_room(0)
    assert await world.room.has_room(0)
    assert len(world.looks) == 1
    world.error = None
    assert not await world.later(0.9, 1)
    world.error = Unavailable("away")
    assert not await world.later(0.1, 1)
