"""Requests that wait outside: put off at the broker, called for in their order, never left behind."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from broker.delivery import Delivery
from broker.publisher import Full
from schemas.codec import encode
from schemas.request import Request
from stages.preprocess import outside as outside_module
from stages.preprocess.outside import AWAY_S, LONGEST_AWAY_S, RENEW_S, Outside
from stages.preprocess.parking import LineFullError, Parking, Place

SUBJECT = "hr.ticket.m.t"


class World:
    """A queue that remembers what was said of which message, and a clock."""

    def __init__(self, places: int = 2, total: int = 1000) -> None:
        self.now = 1000.0
        self.given_back: list[tuple[int, float]] = []
        self.said: list[tuple[str, float]] = []
        self.cancelled: set[str] = set()
        self.parking = Parking(requests=places, size=1000, total=total)
        self.outside = Outside(self, self.parking, self.cancelled, 900.0, lambda: self.now)

    async def nak(self, delivery: Delivery, delay_s: float) -> None:
        self.given_back.append((delivery.sequence, delay_s))

    async def again(self, ack_subject: str, delay_s: float) -> None:
        self.said.append((ack_subject, delay_s))

    async def put(self, *sequences: int, deadline_s: float = 600.0) -> None:
        for sequence in sequences:
            assert await self.outside.put(SUBJECT, "t", delivery(sequence, deadline_s=deadline_s))

    @asynccontextmanager
    async def jam(self, subject: str = SUBJECT) -> AsyncGenerator[None]:
        """A line inside for `subject`, with one in it that finds no room."""

        async def no_room() -> None:
            raise Full(subject)

        waits = asyncio.create_task(self.parking.get_through(subject, Place(1), no_room))
        await asyncio.sleep(0)
        assert self.parking.jammed(subject)
        yield
        waits.cancel()
        await asyncio.wait([waits])

    def called(self) -> list[str]:
        """What was called for since this was asked last."""
        found = [ack for ack, delay_s in self.said if delay_s == 0.0]
        self.said.clear()
        return found


def delivery(sequence: int, *, deliveries: int = 1, deadline_s: float = 600.0, age_s: float = 0.0) -> Delivery:
    return Delivery(
        data=encode(Request(id=f"r{sequence}", session="s", prompt="x", deadline_s=deadline_s)),
        subject="hr.request.t.m",
        sequence=sequence,
        deliveries=deliveries,
        stored_at=time.time() - age_s,
        ack_subject=f"ack.{sequence}",
    )


def _always(_: str) -> bool:
    return True


async def test_each_is_called_when_one_went_through() -> None:
    """In the order in which they came, one for one; the broker keeps them for long until then."""
    world = World(places=0)
    await world.put(1, 2, 3)
    assert world.given_back == [(1, AWAY_S), (2, AWAY_S), (3, AWAY_S)]
    await world.outside.step_up(SUBJECT)
    assert world.called() == ["ack.1"]
    await world.outside.step_up("hr.ticket.m.other")
    assert world.called() == []
    await world.outside.step_up(SUBJECT)
    await world.outside.step_up(SUBJECT)
    await world.outside.step_up(SUBJECT)
    assert world.called() == ["ack.2", "ack.3"]
    assert len(world.outside) == 0


async def test_a_line_that_gets_short_calls_more_than_went() -> None:
    """Others may have taken what was called: the places inside fill up again."""
    world = World(places=4)
    await world.put(1, 2, 3)
    await world.outside.step_up(SUBJECT)
    assert world.called() == ["ack.1", "ack.2"]


async def test_a_full_line_takes_nobody_in() -> None:
    """Whoever comes to it has to wait outside."""
    world = World(places=1)
    async with world.jam():
        with pytest.raises(LineFullError):
            world.outside.take_turn(SUBJECT, "t", delivery(1))
    World(places=1).outside.take_turn(SUBJECT, "t", delivery(1))


async def test_whoever_comes_later_goes_behind_those_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise new requests would take every free place before those that are called for it."""
    world = World(places=2)
    await world.put(1)
    monkeypatch.setattr(world.parking, "jammed", _always)
    with pytest.raises(LineFullError):
        world.outside.take_turn(SUBJECT, "t", delivery(2))
    world.outside.take_turn(SUBJECT, "t", delivery(1, deliveries=2))  # that was called, or came by itself
    assert len(world.outside) == 0
    world.outside.take_turn(SUBJECT, "t", delivery(3))


async def test_what_is_over_is_let_in_to_be_told() -> None:
    """E9, E13: cancelled, or past its deadline: it needs no place, and would come again at once for ever."""
    world = World(places=0)
    world.outside.take_turn(SUBJECT, "t", delivery(1, deadline_s=1.0, age_s=2.0))
    world.outside.take_turn(SUBJECT, "t", delivery(2, deliveries=2, deadline_s=1000.0, age_s=950.0))
    world.cancelled.add("t.r3")
    world.outside.take_turn(SUBJECT, "t", delivery(3))


async def test_a_cancelled_one_is_called_out_of_its_turn() -> None:
    """Its client hears of it now; one that is not here is nobody's business."""
    world = World(places=0)
    await world.put(1, 2)
    await world.outside.call_key("t.r2")
    await world.outside.call_key("t.r7")
    assert world.called() == ["ack.2"]


async def test_it_is_put_off_again_but_never_beyond_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it comes by itself; at its deadline it comes, to be told so."""
    world = World(places=0)
    monkeypatch.setattr(world.parking, "jammed", _always)
    await world.put(1)
    await world.put(2, deadline_s=AWAY_S + 5.0)
    await world.put(3, deadline_s=5.0)
    assert world.given_back[2][1] == pytest.approx(5.0, abs=0.5)
    await world.outside.renew()
    assert world.said == []
    world.now += AWAY_S - RENEW_S + 1.0
    await world.outside.renew()
    assert [ack for ack, _ in world.said] == ["ack.1", "ack.2"]
    first, second = (delay_s for _, delay_s in world.said)
    assert first == 2 * AWAY_S
    assert second == pytest.approx(RENEW_S - 1.0 + 5.0, abs=0.5)
    assert len(world.outside) == 2  # the third is on its way
    world.now += LONGEST_AWAY_S
    world.said.clear()
    await world.outside.renew()
    await world.outside.step_up(SUBJECT)
    assert (world.said, len(world.outside)) == ([], 0)  # so are all, after a pause of ours


async def test_those_far_behind_are_put_off_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """For twice the time until their turn: hardly ever again, and if this process dies they come in their order."""
    world = World(places=0)
    monkeypatch.setattr(world.parking, "jammed", _always)
    await world.put(*range(100))
    for _ in range(4):
        world.now += 2.0
        for _ in range(4):
            await world.outside.step_up(SUBJECT)
        await world.outside.renew()
    delays = {int(ack.removeprefix("ack.")): delay_s for ack, delay_s in world.said if delay_s}
    assert (min(delays), delays[16], delays[99]) == (16, AWAY_S, pytest.approx(83.0))
    assert sorted(delays.values()) == list(delays.values())


async def test_while_nothing_goes_they_are_put_off_longer_and_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long standstill costs less and less."""
    world = World(places=0)
    monkeypatch.setattr(world.parking, "jammed", _always)
    await world.put(1)
    delays: list[float] = []
    for _ in range(150):
        world.now += 2.0
        await world.outside.renew()
        delays += [delay_s for _, delay_s in world.said]
        world.said.clear()
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (2 * AWAY_S, LONGEST_AWAY_S)
    assert len(delays) < 10


async def test_nobody_is_left_outside_an_empty_line() -> None:
    """What was called went through elsewhere, and nothing comes here that would call the others."""
    world = World(places=2)
    await world.put(1, 2, 3)
    await world.outside.renew()
    assert world.called() == ["ack.1", "ack.2", "ack.3"]


async def test_at_the_end_all_are_left_to_others() -> None:
    """A soft stop: another replica may have room."""
    world = World(places=0)
    await world.put(1, 2)
    await world.outside.call_all()
    assert world.called() == ["ack.1", "ack.2"]


async def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it nothing is remembered: the caller gives it back in another way."""
    monkeypatch.setattr(outside_module, "MOST", 2)
    world = World(places=0)
    await world.put(1, 2)
    assert not await world.outside.put(SUBJECT, "t", delivery(3))
    assert [sequence for sequence, _ in world.given_back] == [1, 2]


async def test_what_cannot_be_read_waits_like_any_other() -> None:
    """It is refused in its turn."""
    world = World(places=1)
    broken = Delivery(data=b"\xff", subject="", sequence=9, deliveries=1, stored_at=time.time(), ack_subject="ack.9")
    async with world.jam():
        with pytest.raises(LineFullError):
            world.outside.take_turn(SUBJECT, "t", broken)
    assert await world.outside.put(SUBJECT, "t", broken)
    assert world.given_back == [(9, AWAY_S)]


async def test_a_jam_of_others_holds_up_nobody() -> None:
    """Whatever is parked, who is not jammed himself gets to his try."""
    world = World(places=1, total=1)
    async with world.jam("hr.ticket.m.other"):
        await world.outside.put("hr.ticket.m.other", "other", delivery(1))
        world.outside.take_turn(SUBJECT, "t", delivery(2))
        world.outside.take_turn(SUBJECT, "t", delivery(3, deliveries=2))
        with pytest.raises(LineFullError):
            world.outside.take_turn("hr.ticket.m.other", "other", delivery(4))
