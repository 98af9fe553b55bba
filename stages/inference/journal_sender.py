"""Carries the outboxes to the journals: a loop per partition, one message in flight in each."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from broker.connection import BrokerError, TooLarge
from schemas.journal import JournalMessage
from stages.inference.outbox import PartitionOutbox

log = structlog.get_logger()

APPEND_TIMEOUT_S = 5.0
FIRST_BACK_OFF_S = 0.05
LONGEST_BACK_OFF_S = 1.0
SMALLEST_MESSAGE = 4096


class Journals(Protocol):
    """Where messages go: `broker.journal.JournalWriter`, or a test."""

    async def append(self, partition: int, message: JournalMessage, timeout_s: float = 5) -> int:
        """Stores the message. Raises `BrokerError`: then it may or may not be stored."""
        ...


class JournalSender:
    """The outboxes of all partitions, and what sends them.

    `on_over` is told of every attempt of which the journal has everything. `blocked` while a journal refuses or does
    not answer: the worker keeps what it has then and takes nothing new.
    """

    def __init__(self, journals: Journals, origin: str, partitions: int, on_over: Callable[[list[str]], None]) -> None:
        self._journals = journals
        self._on_over = on_over
        self._wake = [asyncio.Event() for _ in range(partitions)]
        self._failing: set[int] = set()
        self._settled = asyncio.Event()
        self.boxes = [PartitionOutbox(origin, wake.set) for wake in self._wake]

    @property
    def blocked(self) -> bool:
        return bool(self._failing)

    async def run(self) -> None:
        """Sends until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for partition in range(len(self.boxes)):
                group.create_task(self._send_partition(partition))

    async def drained(self, timeout_s: float) -> bool:
        """Waits until the journals have everything; False where that took longer."""
        try:
            async with asyncio.timeout(timeout_s):
                while not all(box.empty for box in self.boxes):
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def _send_partition(self, partition: int) -> None:
        box, wake = self.boxes[partition], self._wake[partition]
        back_off = FIRST_BACK_OFF_S
        while True:
            self._settled.set()
            await wake.wait()
            wake.clear()
            while (message := box.take()) is not None:
                if await self._append(partition, message):
                    back_off = FIRST_BACK_OFF_S
                else:
                    await asyncio.sleep(back_off)
                    back_off = min(back_off * 2, LONGEST_BACK_OFF_S)
            # What was not stored may be forgotten by now: nothing else would ever find this journal well again.
            self._failing.discard(partition)

    async def _append(self, partition: int, message: JournalMessage) -> bool:
        box = self.boxes[partition]
        try:
            await self._journals.append(partition, message, timeout_s=APPEND_TIMEOUT_S)
        except TooLarge:
            box.failed()
            box.message_bytes = max(box.message_bytes // 2, SMALLEST_MESSAGE)
            log.warning("inference.message_too_large", partition=partition, now_bytes=box.message_bytes)
            return box.message_bytes > SMALLEST_MESSAGE
        except BrokerError as error:
            box.failed()
            self._note_failing(partition, error)
            return False
        self._failing.discard(partition)
        if over := box.stored():
            self._on_over(over)
        return True

    def _note_failing(self, partition: int, error: BrokerError) -> None:
        if partition not in self._failing:
            log.warning("inference.journal_unavailable", partition=partition, error=str(error))
        self._failing.add(partition)
