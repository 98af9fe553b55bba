"""Requests that wait outside, in the broker's hands, because the line of their model and tenant is full here.

Left to themselves they would come again and again, with all their bytes, on the chance that there is room: the longer
the queue, the more of that. So each is put off for long, and called for when it is its turn. What this process forgets
comes by itself after a while.
"""

import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import msgspec

from broker.delivery import Delivery
from schemas.codec import WireError, decode, encoding_of
from schemas.request import DEFAULT_DEADLINE_S
from stages.preprocess.parking import LineFullError, Parking

AWAY_S, LONGEST_AWAY_S = 10.0, 120.0
"""For how long one is put off: for twice the time until its turn, as fast as the line goes now."""

RENEW_S = 4.0
"""A request that would come by itself so soon is put off again: that costs a few bytes, not the request."""

MOST = 20_000
CALLED_UNASKED = 16
NEWEST_SHARE = 0.3
"""Of the last few seconds in what is known of a line's speed."""


class Queue(Protocol):
    """What is needed of a `WorkQueue`."""

    async def nak(self, delivery: Delivery, delay_s: float) -> None: ...
    async def again(self, ack_subject: str, delay_s: float) -> None: ...


class _Head(msgspec.Struct):
    """What has to be known of a request that is not looked at yet."""

    id: str = ""
    deadline_s: float = DEFAULT_DEADLINE_S


@dataclass(slots=True)
class _Away:
    """`until`: when its time is over, `back_at`: when it comes by itself (both on this process's clock)."""

    key: str
    ack_subject: str
    until: float
    away_s: float = 0.0
    back_at: float = 0.0

    def put_off(self, now: float, turn_s: float | None) -> float:
        """For how many seconds; its turn comes in `turn_s` (`None`: not known)."""
        wanted_s = 2 * (self.away_s if turn_s is None else turn_s)
        self.away_s = min(max(wanted_s, AWAY_S), LONGEST_AWAY_S)
        self.back_at = min(now + self.away_s, self.until)
        return max(self.back_at - now, 0.0)


@dataclass(slots=True)
class _Line:
    """Those who wait for one subject, by their sequence; `went` counts who went through since the last look at it."""

    waiting: dict[int, _Away] = field(default_factory=dict[int, _Away])
    went: int = 0
    speed: float = 0.0
    looked_at: float = 0.0

    def look(self, now: float) -> None:
        """Measures the speed, requests a second."""
        if now > self.looked_at:
            newest = self.went / (now - self.looked_at)
            self.speed += (newest - self.speed) * (NEWEST_SHARE if self.speed else 1.0)
        self.went, self.looked_at = 0, now

    def turn_s(self, position: int) -> float | None:
        """In how many seconds it is the turn of who stands there; `None` while nothing goes."""
        return position / self.speed if self.speed > 0.01 else None


class Outside:
    """In the order in which they came, by the subject of their tickets; `parking` is the line inside.

    `cancelled` holds the keys of cancelled requests, `longest_s` is the longest deadline.
    """

    def __init__(
        self,
        queue: Queue,
        parking: Parking,
        cancelled: Container[str],
        longest_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._parking = parking
        self._cancelled = cancelled
        self._longest_s = longest_s
        self._clock = clock
        self._lines: dict[str, _Line] = {}
        self._by_key: dict[str, tuple[str, int]] = {}

    def __len__(self) -> int:
        return sum(len(line.waiting) for line in self._lines.values())

    def take_turn(self, subject: str, tenant: str, delivery: Delivery) -> None:
        """Raises `LineFullError` where it has to wait outside: also behind those that came before it and do so.

        One that only has to be told that it is over goes on.
        """
        comes_first = delivery.deliveries == 1
        if not comes_first:
            self._forget(subject, delivery.sequence)
        behind = comes_first and subject in self._lines and self._parking.jammed(subject)
        if (behind or self._parking.full(subject)) and not self._is_over(self._away(tenant, delivery)):
            raise LineFullError(subject)

    async def put(self, subject: str, tenant: str, delivery: Delivery) -> bool:
        """Hands it back, to be called for later; False where there are too many: then nothing is done."""
        if len(self) >= MOST:
            return False
        away, line = self._away(tenant, delivery), self._lines.get(subject) or _Line(looked_at=self._clock())
        await self._queue.nak(delivery, away.put_off(self._clock(), line.turn_s(len(line.waiting))))
        self._lines.setdefault(subject, line).waiting[delivery.sequence] = away
        self._by_key[away.key] = (subject, delivery.sequence)
        return True

    async def step_up(self, subject: str) -> None:
        """One went through: calls for the next, and for one more where the line inside gets short."""
        line = self._lines.get(subject)
        if line is not None:
            line.went += 1
            await self._call_first(subject, 2 if self._parking.half_empty(subject) else 1)

    async def call_key(self, key: str) -> None:
        """Calls for a request that has to be answered now, out of its turn."""
        if key in self._by_key:
            await self._call(*self._by_key[key])

    async def call_all(self) -> None:
        """Leaves them to others."""
        for subject, line in list(self._lines.items()):
            await self._call_first(subject, len(line.waiting))

    async def renew(self) -> None:
        """Every few seconds: puts off again what would come by itself before its turn and its deadline."""
        for subject, line in list(self._lines.items()):
            line.look(self._clock())
            for position, (sequence, away) in enumerate(list(line.waiting.items())):
                await self._renew(subject, sequence, away, line.turn_s(position))
            if not self._parking.jammed(subject):  # those that were called went through elsewhere
                await self._call_first(subject, CALLED_UNASKED)

    async def _renew(self, subject: str, sequence: int, away: _Away, turn_s: float | None) -> None:
        now = self._clock()
        if away.back_at <= now:  # it is on its way, to whoever pulls
            self._forget(subject, sequence)
        elif away.back_at - now < RENEW_S and away.back_at < away.until and self._waits(subject, sequence):
            await self._queue.again(away.ack_subject, away.put_off(now, turn_s))

    def _away(self, tenant: str, delivery: Delivery) -> _Away:
        head = _head(delivery)
        left_s = delivery.stored_at + min(head.deadline_s, self._longest_s) - time.time()
        return _Away(f"{tenant}.{head.id}", delivery.ack_subject, self._clock() + left_s)

    def _is_over(self, away: _Away) -> bool:
        return away.until <= self._clock() or away.key in self._cancelled

    def _waits(self, subject: str, sequence: int) -> bool:
        return subject in self._lines and sequence in self._lines[subject].waiting

    def _forget(self, subject: str, sequence: int) -> None:
        line = self._lines.get(subject)
        if line is None:
            return
        away = line.waiting.pop(sequence, None)
        if away is not None:
            self._by_key.pop(away.key, None)
        if not line.waiting:
            del self._lines[subject]

    async def _call_first(self, subject: str, count: int) -> None:
        line = self._lines.get(subject)
        for sequence in list(islice(line.waiting, count)) if line is not None else ():
            await self._call(subject, sequence)

    async def _call(self, subject: str, sequence: int) -> None:
        if not self._waits(subject, sequence):
            return
        away = self._lines[subject].waiting[sequence]
        self._forget(subject, sequence)
        if away.back_at > self._clock():
            await self._queue.again(away.ack_subject, 0.0)


def _head(delivery: Delivery) -> _Head:
    try:
        return decode(_Head, delivery.data, encoding_of(delivery.content_type, delivery.data))
    except WireError:
        return _Head()
