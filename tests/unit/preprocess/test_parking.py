"""Lines of requests without room: in order, bounded, one tries at a time, each can be called off."""

import asyncio

import pytest

from broker.connection import Unavailable
from broker.publisher import Full
from stages.preprocess.parking import NoRoomError, Parking, Place


class Tickets:
    """A subject with room for so many tickets."""

    def __init__(self, room: int = 0) -> None:
        self.room = room
        self.stored: list[str] = []
        self.tries = 0

    async def publish(self, name: str) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        if not self.room:
            raise Full(name)
        self.room -= 1
        self.stored.append(name)


def enter(parking: Parking, tickets: Tickets, name: str, subject: str = "a", size: int = 1) -> "asyncio.Task[bool]":
    return asyncio.create_task(parking.get_through(subject, Place(size), lambda: tickets.publish(name)))


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_with_room_nobody_waits() -> None:
    """The plain case leaves no trace."""
    parking, tickets = Parking(requests=1, size=1, total=100), Tickets(room=1)
    assert await parking.get_through("a", Place(5), lambda: tickets.publish("x"))
    assert (tickets.stored, parking.parked, tickets.tries) == (["x"], 0, 1)


async def test_they_go_in_the_order_in_which_they_came() -> None:
    """Also one that comes later and would find room; and only the first one keeps asking the broker."""
    parking, tickets = Parking(requests=10, size=100, total=100), Tickets()
    waiting = [enter(parking, tickets, str(n)) for n in range(5)]
    await settled()
    assert parking.parked == 5
    tickets.tries = 0
    await asyncio.sleep(0.1)
    assert tickets.tries <= 5  # the pauses grow, and four only wait
    tickets.room = 6
    late = enter(parking, tickets, "late")
    assert all(await asyncio.gather(*waiting, late))
    assert tickets.stored == ["0", "1", "2", "3", "4", "late"]
    assert parking.parked == 0


async def test_one_line_holds_up_no_other() -> None:
    """Another tenant or model gets through at once."""
    parking, full, empty = Parking(requests=10, size=100, total=100), Tickets(), Tickets(room=1)
    stuck = enter(parking, full, "stuck")
    await settled()
    assert await enter(parking, empty, "free", subject="b")
    stuck.cancel()


@pytest.mark.parametrize(("requests", "size", "each"), [(2, 100, 1), (100, 10, 5)])
async def test_a_line_is_bounded(requests: int, size: int, each: int) -> None:
    """By count and by bytes; beyond that the request has to go back, and `full` tells before any work is done."""
    parking, tickets = Parking(requests=requests, size=size, total=100), Tickets()
    assert not parking.full("a")
    waiting = [enter(parking, tickets, str(n), size=each) for n in range(2)]
    await settled()
    assert parking.full("a")
    assert not parking.full("b")
    with pytest.raises(NoRoomError):
        await enter(parking, tickets, "more", size=each)
    tickets.room = 2
    assert all(await asyncio.gather(*waiting))
    assert not parking.full("a")


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_one_that_is_called_off_leaves_at_once(which: int) -> None:
    """First or not; those behind move up."""
    parking, tickets = Parking(requests=10, size=100, total=100), Tickets()
    places = [Place(1) for _ in range(3)]
    waiting = [
        asyncio.create_task(parking.get_through("a", place, lambda n=n: tickets.publish(str(n))))
        for n, place in enumerate(places)
    ]
    await asyncio.sleep(0.05)
    places[which].call_off()
    assert await asyncio.wait_for(waiting[which], 3) is False
    tickets.room = 2
    assert await asyncio.gather(*waiting) == [n != which for n in range(3)]
    assert tickets.stored == [str(n) for n in range(3) if n != which]


async def test_one_that_was_called_off_before_does_not_wait() -> None:
    """It tries once, as when a stage is stopping."""
    parking, tickets = Parking(requests=10, size=100, total=100), Tickets()
    assert not await parking.get_through("a", Place(1, called_off=True), lambda: tickets.publish("x"))
    tickets.room = 1
    assert await parking.get_through("a", Place(1, called_off=True), lambda: tickets.publish("x"))


async def test_another_error_frees_the_place() -> None:
    """It is the caller's, and those behind move up."""
    parking, tickets = Parking(requests=10, size=100, total=100), Tickets()

    async def fail() -> None:
        if tickets.room:
            raise Unavailable("gone")
        raise Full("a")

    first = asyncio.create_task(parking.get_through("a", Place(1), fail))
    second = enter(parking, tickets, "second")
    await settled()
    tickets.room = 1
    with pytest.raises(Unavailable):
        await first
    assert await second
    assert parking.parked == 0


async def test_all_lines_together_leave_room_for_others() -> None:
    """However many models and tenants are jammed, they hold no more than their part; who finds room goes on."""
    parking, jammed, empty = Parking(requests=10, size=100, total=2), Tickets(), Tickets(room=1)
    waiting = [enter(parking, jammed, str(n), subject="long") for n in range(2)]
    await settled()
    assert parking.full("long")
    with pytest.raises(NoRoomError):
        await enter(parking, jammed, "too many", subject="long")
    assert not parking.full("other"), "it may find room"
    assert await enter(parking, empty, "found room", subject="other")
    waiting.append(enter(parking, jammed, "first of its line", subject="another"))
    await settled()
    assert parking.parked == 3
    with pytest.raises(NoRoomError):
        await enter(parking, jammed, "not even a first", subject="yet another")
    jammed.room = 3
    assert all(await asyncio.gather(*waiting))
    assert not parking.full("long")
