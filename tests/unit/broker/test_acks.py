"""Acknowledgements that go together: in order, the last one with an answer, which is that of all."""

import asyncio
from typing import Any, cast

import pytest

from broker import acks as acks_module
from broker.acks import Acks
from broker.connection import Connection, Inbound, Unavailable


class Wire:
    """A connection that remembers what was sent: (subject, whether an answer was asked for)."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bool]] = []
        self.answer = asyncio.Event()
        self.answer.set()
        self.failures = 0

    async def publish(self, subject: str, data: bytes) -> None:
        assert data == b"+ACK"
        self.sent.append((subject, False))

    async def request(self, subject: str, data: bytes, timeout_s: float) -> Inbound:
        assert (data, timeout_s > 0) == (b"+ACK", True)
        self.sent.append((subject, True))
        if self.failures:
            self.failures -= 1
            raise Unavailable("away")
        await self.answer.wait()
        return Inbound(subject, b"")


def acks(wire: Wire, **options: Any) -> Acks:
    return Acks(cast("Connection", wire), **options)


async def test_what_comes_in_one_turn_goes_together() -> None:
    """One round trip for all of it; nobody hears of it before the answer to the last is here."""
    wire = Wire()
    wire.answer.clear()
    made = acks(wire)
    confirmed = [asyncio.create_task(made.confirm(name)) for name in "abc"]
    await asyncio.sleep(0.01)
    assert wire.sent == [("a", False), ("b", False), ("c", True)]
    assert not any(task.done() for task in confirmed)
    wire.answer.set()
    await asyncio.gather(*confirmed)


async def test_a_gathering_one_goes_after_its_time() -> None:
    """Not before: others may join it."""
    wire = Wire()
    made = acks(wire, gather_s=0.05)
    first = asyncio.create_task(made.confirm("a"))
    await asyncio.sleep(0.02)
    second = asyncio.create_task(made.confirm("b"))
    await asyncio.sleep(0)
    assert wire.sent == []
    await asyncio.gather(first, second)
    assert wire.sent == [("a", False), ("b", True)]


async def test_a_full_batch_does_not_wait() -> None:
    """So many slots may be kept by it and no more."""
    wire = Wire()
    made = acks(wire, gather_s=60, at_most=2)
    async with asyncio.timeout(5):
        await asyncio.gather(*(made.confirm(name) for name in "abcd"))
    assert wire.sent == [("a", False), ("b", True), ("c", False), ("d", True)]


async def test_at_the_end_none_waits_for_others() -> None:
    """What has gathered goes, and what comes later goes at once."""
    wire = Wire()
    made = acks(wire, gather_s=60)
    first = asyncio.create_task(made.confirm("a"))
    await asyncio.sleep(0)
    made.gather_no_more()
    async with asyncio.timeout(5):
        await first
        await made.confirm("b")


async def test_all_of_a_batch_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them the broker has not seen: doing it twice does no harm."""
    monkeypatch.setattr(acks_module, "BACK_OFF_S", 0.001)
    wire = Wire()
    wire.failures = 2
    made = acks(wire)
    await asyncio.gather(made.confirm("a"), made.confirm("b"))
    assert wire.sent == [("a", False), ("b", True)] * 3


async def test_everybody_hears_that_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of those who wait, and not only the last."""
    monkeypatch.setattr(acks_module, "PATIENCE_S", 0.0)
    monkeypatch.setattr(acks_module, "BACK_OFF_S", 0.001)
    wire = Wire()
    wire.failures = 1000
    made = acks(wire)
    outcomes = await asyncio.gather(made.confirm("a"), made.confirm("b"), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]


async def test_one_that_is_not_waited_for_any_more_goes_too() -> None:
    """Its work is done; the others of its batch are not touched."""
    wire = Wire()
    made = acks(wire, gather_s=0.02)
    left = asyncio.create_task(made.confirm("a"))
    stays = asyncio.create_task(made.confirm("b"))
    await asyncio.sleep(0)
    left.cancel()
    await stays
    assert wire.sent == [("a", False), ("b", True)]
