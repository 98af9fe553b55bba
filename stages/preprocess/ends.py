"""`End` entries on their way to the journals: what waits for a partition goes as one message, one at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from broker.connection import BrokerError
from broker.settling import settle
from schemas.journal import End, JournalMessage

log = structlog.get_logger()

FIRST_PAUSE_S = 0.05
LAST_PAUSE_S = 2.0
ENDS_A_MESSAGE = 256

Append = Callable[[int, JournalMessage], Awaitable[Any]]


class Ends:
    """`append` stores one message in a partition's journal, acknowledged; `origin` is this process."""

    def __init__(self, append: Append, origin: str) -> None:
        self._append = append
        self._origin = origin
        self._waiting: dict[int, list[tuple[End, asyncio.Future[None]]]] = {}
        self._writing: dict[int, asyncio.Task[None]] = {}

    async def store(self, partition: int, ends: list[End]) -> None:
        """Returns once all of `ends` are stored, however long the broker is full or away; the caller may cancel it."""
        loop = asyncio.get_running_loop()
        stored = [(end, loop.create_future()) for end in ends]
        self._waiting.setdefault(partition, []).extend(stored)
        if partition not in self._writing:
            self._writing[partition] = asyncio.create_task(self._write(partition), name=f"ends {partition}")
        await asyncio.gather(*(future for _, future in stored))

    async def close(self) -> None:
        """Forgets what is not stored."""
        for task in self._writing.values():
            task.cancel()
        await asyncio.gather(*self._writing.values(), return_exceptions=True)

    async def _write(self, partition: int) -> None:
        try:
            while waiting := self._waiting.pop(partition, []):
                now, later = waiting[:ENDS_A_MESSAGE], waiting[ENDS_A_MESSAGE:]
                if later:
                    self._waiting[partition] = later
                await settle(now, partial(self._store, partition))
        finally:
            del self._writing[partition]

    async def _store(self, partition: int, ends: list[End]) -> None:
        message = JournalMessage(origin=self._origin, ends=ends)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._append(partition, message)
            except BrokerError as error:
                log.warning("preprocess.journal_awaited", partition=partition, error=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(LAST_PAUSE_S, pause_s * 2)
            else:
                return
