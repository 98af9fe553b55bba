"""Requests whose tickets have no room: they wait in line, by model and tenant, and hold up nobody else's."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from broker.publisher import Full

FIRST_PAUSE_S = 0.02
LAST_PAUSE_S = 0.5


class NoRoomError(Exception):
    """No place to wait for what has no room: the request has to go back."""


class LineFullError(NoRoomError):
    """As many requests as may wait here in this line do so."""


@dataclass(eq=False)
class Place:
    """A request in a line. `call_off` ends its waiting: `wait` and `pause` return early then."""

    size: int
    first: bool = False
    called_off: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def step_forward(self) -> None:
        self.first = True
        self._changed.set()

    def call_off(self) -> None:
        self.called_off = True
        self._changed.set()

    async def wait(self) -> None:
        """Until it is the first in its line, or called off."""
        while not (self.first or self.called_off):
            self._changed.clear()
            await self._changed.wait()

    async def pause(self, seconds: float) -> None:
        """For `seconds`, or until it is called off."""
        self._changed.clear()
        if self.called_off:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()


class Parking:
    """A line for each subject of tickets. Only the first in a line tries; the others follow once it got through.

    A line holds at most `requests` and `size` bytes, all lines together `total` requests: what is parked keeps its
    slot, and those who find room need some too. The first in a line is let in beyond that, up to half as many again:
    a line with nobody in it would only move when it is looked at.
    """

    def __init__(self, *, requests: int, size: int, total: int) -> None:
        self._requests = requests
        self._size = size
        self._total = total
        self._lines: dict[str, deque[Place]] = {}
        self.parked = 0
        """Requests in all lines."""

    def full(self, subject: str) -> bool:
        """Whether one more request for `subject` would have to go back without a try: its line has no place left."""
        return subject in self._lines and not self._has_place(subject)

    def _has_place(self, subject: str) -> bool:
        line = self._lines.get(subject)
        if line is None:
            return self.parked < self._total + self._total // 2
        waiting = sum(place.size for place in line)
        return len(line) < self._requests and waiting < self._size and self.parked < self._total

    def jammed(self, subject: str) -> bool:
        """Whether any wait for room under `subject`."""
        return subject in self._lines

    def half_empty(self, subject: str) -> bool:
        """Whether less than half of the places of its line are taken."""
        return 2 * len(self._lines.get(subject, ())) < self._requests

    async def get_through(self, subject: str, place: Place, publish: Callable[[], Awaitable[None]]) -> bool:
        """Calls `publish` until it raises no `Full`; behind those that wait already. False where it was called off.

        Raises `LineFullError`, and what else `publish` raises.
        """
        if subject not in self._lines:
            with contextlib.suppress(Full):
                await publish()
                return True
        if not self._has_place(subject):
            raise LineFullError(subject)
        line = self._lines.setdefault(subject, deque())
        line.append(place)
        self.parked += 1
        try:
            line[0].step_forward()
            await place.wait()
            return await _try(place, publish)
        finally:
            self._leave(subject, line, place)

    def _leave(self, subject: str, line: deque[Place], place: Place) -> None:
        self.parked -= 1
        line.remove(place)
        if line:
            line[0].step_forward()
        elif self._lines.get(subject) is line:
            del self._lines[subject]


async def _try(place: Place, publish: Callable[[], Awaitable[None]]) -> bool:
    """`publish` with growing pauses. False where `place` was called off."""
    pause_s = FIRST_PAUSE_S
    while not place.called_off:
        try:
            await publish()
        except Full:
            await place.pause(pause_s)
            pause_s = min(LAST_PAUSE_S, pause_s * 2)
        else:
            return True
    return False
