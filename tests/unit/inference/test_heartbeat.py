"""Heartbeats come at their period, and at once when schedulers wait for what became free."""

import asyncio
import contextlib

from schemas.control import WorkerStatus
from schemas.grant import Credits
from stages.inference.heartbeat import Heartbeat


class Receiver:
    """A worker with `slots` free, and all heartbeats that were sent of it."""

    def __init__(self, slots: int, period_s: float) -> None:
        self.slots = slots
        self.got: list[WorkerStatus] = []
        self.heartbeat = Heartbeat(self.send, self.status, period_s)

    async def send(self, status: WorkerStatus) -> None:
        self.got.append(status)

    def status(self, number: int) -> WorkerStatus:
        return WorkerStatus(worker="w", model="m", state="ready", credits=Credits(self.slots, 100), sent=number)

    async def run_for(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.heartbeat.run()


async def test_period_and_numbers() -> None:
    """One at once, then one a period, counted."""
    receiver = Receiver(slots=2, period_s=0.05)
    await receiver.run_for(0.23)
    assert 3 <= len(receiver.got) <= 5
    assert [status.sent for status in receiver.got] == list(range(1, len(receiver.got) + 1))


async def test_freed_slots_are_told_at_once() -> None:
    """What became free within a moment is told in one heartbeat, long before the next period."""
    receiver = Receiver(slots=0, period_s=10)
    running = asyncio.create_task(receiver.run_for(0.3))
    await asyncio.sleep(0.05)
    for slots in (1, 2, 3):
        receiver.slots = slots
        receiver.heartbeat.note(Credits(slots, 100))
    await running
    assert [status.credits.slots for status in receiver.got] == [0, 3]


async def test_what_schedulers_know_is_not_told_again() -> None:
    """Fewer slots, or those that a reply to a grant has named, are no news."""
    receiver = Receiver(slots=4, period_s=10)
    running = asyncio.create_task(receiver.run_for(0.15))
    await asyncio.sleep(0.03)
    receiver.heartbeat.note(Credits(3, 100))
    receiver.heartbeat.told(Credits(2, 100))
    receiver.heartbeat.note(Credits(2, 100))
    await running
    assert len(receiver.got) == 1
