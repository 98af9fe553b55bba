"""How long a client waits for an answer of which nothing is heard: as long as the request may still be alive."""

import asyncio
from typing import Protocol

import structlog

from broker import subjects
from broker.connection import BrokerError, Connection
from broker.jetstream_api import call
from schemas.faults import RequestFault
from schemas.request import MAX_DEADLINE_S

log = structlog.get_logger()

SILENCE_S = 5.0
"""After this long without a result the stored ones are looked at: a live message may have been lost."""

LONGEST_SILENCE_S = 60.0
"""Nor need all that waits in a queue be looked for every few seconds: each look takes a consumer of its own."""

AFTER_DEADLINE_S = 30.0

LONGEST_LIFE_S = MAX_DEADLINE_S + AFTER_DEADLINE_S

LEAST_S = 10.0
"""A request that was refused is in no queue any more, and for a moment its answer is not stored yet."""


class Patience(Protocol):
    """Judges silence. `look_every_s`: after how much of it the stored results are read."""

    look_every_s: float

    async def silent(self, *, something: bool) -> None:
        """The stored results hold nothing new; `something`: but they hold some. Raises `RequestFault` at the end."""
        ...

    async def blind(self) -> None:
        """The broker cannot be asked. Raises `RequestFault` at the end."""
        ...

    def heard(self) -> None:
        """There was a sign of life."""
        ...


class UntilDeadline:
    """For whoever sent the request, and knows its deadline (seconds from now)."""

    def __init__(self, deadline_s: float) -> None:
        self.look_every_s = SILENCE_S
        self._end = asyncio.get_running_loop().time() + deadline_s + AFTER_DEADLINE_S

    async def silent(self, *, something: bool) -> None:  # noqa: ARG002 - the deadline says it all
        """As `Patience`. Each look is twice as far from the last one, until there is news."""
        left_s = self._end - asyncio.get_running_loop().time()
        self.look_every_s = max(SILENCE_S, min(2 * self.look_every_s, LONGEST_SILENCE_S, left_s))
        await self.blind()

    async def blind(self) -> None:
        """As `Patience`."""
        if asyncio.get_running_loop().time() > self._end:
            raise RequestFault("unavailable", "no answer long after the deadline")

    def heard(self) -> None:
        """As `Patience`."""
        self.look_every_s = SILENCE_S


class WhileAnythingWaits:
    """For whoever knows the id alone: until nothing of the tenant waits or runs, at most a request's longest life.

    With `limit_s` that many seconds of silence instead, whatever waits.
    """

    def __init__(self, connection: Connection, tenant: str, limit_s: float | None = None) -> None:
        self._connection = connection
        self._tenant = tenant
        self._limit_s = limit_s
        self.look_every_s = SILENCE_S if limit_s is None else min(SILENCE_S, max(limit_s, 0.1))
        self._idle = False
        self.heard()

    def heard(self) -> None:
        """As `Patience`."""
        self._since = asyncio.get_running_loop().time()

    async def silent(self, *, something: bool) -> None:
        """As `Patience`."""
        silence_s = asyncio.get_running_loop().time() - self._since
        if self._limit_s is not None:
            over = silence_s >= self._limit_s
        else:
            over = silence_s >= LONGEST_LIFE_S or await self._nothing_waits(silence_s)
        if over:
            raise RequestFault("lost_state", f"{_MISSING[something]} ({silence_s:.0f} s of silence)")

    async def blind(self) -> None:
        """As `Patience`. No limit of the caller's counts: a broker that starts again may take its time."""
        self._idle = False
        if asyncio.get_running_loop().time() - self._since >= LONGEST_LIFE_S:
            raise RequestFault("unavailable", "no broker for longer than a request lives")

    async def _nothing_waits(self, silence_s: float) -> bool:
        """Whether that was so before the stored results were read the last time, too: in between it may have ended."""
        before = self._idle
        try:
            self._idle = not await anything_waits(self._connection, self._tenant)
        except BrokerError as error:
            log.debug("client.cannot_tell_what_waits", error=str(error))
            self._idle = False
        return before and self._idle and silence_s >= LEAST_S


_MISSING = {
    False: "nothing is stored of it: unknown, not begun yet, or older than results are kept",
    True: "its stored answer has no end, and nothing more comes",
}


async def anything_waits(connection: Connection, tenant: str) -> bool:
    """Whether a request of `tenant` is queued or being answered. Raises `Unavailable`, `ApiError`.

    In this order: a request leaves REQUESTS after its tickets are in TICKETS, and TICKETS after its end is stored.
    """
    for stream, subject in (
        (subjects.REQUESTS, subjects.request(tenant, "*")),
        (subjects.TICKETS, subjects.ticket("*", tenant)),
    ):
        state = (await call(connection, f"STREAM.INFO.{stream}", {"subjects_filter": subject}))["state"]
        if state.get("subjects"):
            return True
    return False
