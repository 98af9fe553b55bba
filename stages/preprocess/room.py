"""Whether the results of one answer more have room: a partition close to its limit takes no new requests.

A stream of results that is full drops its oldest ones. That is right for those of answers that ended long ago; those
of an answer that still grows have to stay until it has ended, so that an owner, or a client, can read them again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from broker.connection import BrokerError
from broker.results import Filling

log = structlog.get_logger()

FULL, ROOMY = 0.85, 0.75
"""Parts of a stream's limit: above the first a partition is closed, below the second it is open again. Answers that
have begun go on into what is left."""

YOUNG, OLD = 1.0, 1.1
"""Likewise for the age of the oldest result, in longest deadlines: what is older belongs to no open answer."""

FRESH_S = 1.0
SELDOM_S = 5.0
PLENTY = 64 * 1024 * 1024
"""Bytes that no partition takes in that time: where so much is free, one look holds for it."""

Look = Callable[[int], Awaitable[Filling]]


class ResultsRoom:
    """Looks at a partition's results when a request of it comes, at most once a second.

    `longest_s` is the longest that an answer may take, `limit` a partition's in bytes (0: not known). While the broker
    does not answer, what was seen last holds.
    """

    def __init__(
        self, look: Look, longest_s: float, clock: Callable[[], float] = time.monotonic, limit: int = 0
    ) -> None:
        self._look = look
        self._longest_s = longest_s
        self._clock = clock
        self._limit = limit
        self._look_at: dict[int, float] = {}
        self._looking: dict[int, asyncio.Lock] = {}
        self._closed: set[int] = set()

    @property
    def closed(self) -> int:
        """How many partitions took no new requests when they were last looked at."""
        return len(self._closed)

    async def has_room(self, partition: int) -> bool:
        """Whether a new request of this partition may go on."""
        async with self._looking.setdefault(partition, asyncio.Lock()):
            if self._clock() >= self._look_at.get(partition, 0.0):
                await self._judge(partition)
        return partition not in self._closed

    async def _judge(self, partition: int) -> None:
        fresh_s = FRESH_S
        try:
            filling = await self._look(partition)
        except BrokerError as error:
            log.debug("preprocess.room_unknown", partition=partition, error=str(error))
        else:
            self._set(partition, filling, closed=self._is_closed(partition, filling))
            if (FULL - filling.part) * self._limit > PLENTY:
                fresh_s = SELDOM_S
        self._look_at[partition] = self._clock() + fresh_s

    def _is_closed(self, partition: int, filling: Filling) -> bool:
        was_closed = partition in self._closed
        full = filling.part > (ROOMY if was_closed else FULL)
        return full and filling.oldest_s < self._longest_s * (OLD if was_closed else YOUNG)

    def _set(self, partition: int, filling: Filling, *, closed: bool) -> None:
        if closed == (partition in self._closed):
            return
        seen = {"partition": partition, "part": round(filling.part, 3), "oldest_s": round(filling.oldest_s, 1)}
        if closed:
            self._closed.add(partition)
            log.warning("preprocess.results_full", **seen)
        else:
            self._closed.discard(partition)
            log.warning("preprocess.results_have_room", **seen)
