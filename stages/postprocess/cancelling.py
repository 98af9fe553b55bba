"""Cancels as `end` entries in the journals of the partitions that this replica owns."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import structlog

from broker.connection import BrokerError
from broker.subjects import partition_of
from schemas.codec import WireError
from schemas.control import Cancel
from schemas.faults import Fault
from schemas.journal import End, JournalMessage
from schemas.result import Result
from stages.postprocess.recent import Recent

REMEMBERED = 10_000
ENDS_PER_MESSAGE = 500
RETRY_S = 0.5

CANCELLED = Fault("cancelled", "cancelled by the client")

log = structlog.get_logger()


class Journal(Protocol):
    """`broker.journal.JournalWriter`."""

    async def append(self, partition: int, message: JournalMessage, timeout_s: float = 5.0) -> int: ...


class OwnedPartition(Protocol):
    """`partition.PartitionReader`."""

    def open_choices(self, key: str) -> list[int]: ...

    async def history(self, key: str, session: str) -> list[Result]: ...


class CancelledRequests:
    """Every request that is cancelled ends in the journal of its partition; to end twice means nothing.

    `owned` are the partitions of this replica at any moment.
    """

    def __init__(self, journal: Journal, origin: str, partitions: int, owned: Mapping[int, OwnedPartition]) -> None:
        self._journal = journal
        self._origin = origin
        self._partitions = partitions
        self._owned = owned
        self._recent: Recent[str, Cancel] = Recent(REMEMBERED)
        self._waiting: dict[int, dict[str, Cancel]] = {}
        self._writing: dict[int, asyncio.Task[None]] = {}

    async def on_cancel(self, key: str, cancel: Cancel) -> None:
        """A request is cancelled. Returns at once."""
        self._recent.put(key, cancel)
        self._submit(partition_of(key, self._partitions), {key: cancel})

    def gained(self, partition: int) -> None:
        """Looks once more at the cancels of this partition: its last owner may have died before it wrote them."""
        recent = dict(self._recent.items())
        self._submit(partition, {key: cancel for key, cancel in recent.items() if self._is_in(key, partition)})

    async def stop(self) -> None:
        """Leaves what is not written to the next owner."""
        for task in self._writing.values():
            task.cancel()
        await asyncio.gather(*self._writing.values(), return_exceptions=True)

    def _is_in(self, key: str, partition: int) -> bool:
        return partition_of(key, self._partitions) == partition

    def _submit(self, partition: int, cancels: dict[str, Cancel]) -> None:
        if partition not in self._owned or not cancels:
            return
        self._waiting.setdefault(partition, {}).update(cancels)
        if partition not in self._writing:
            self._writing[partition] = asyncio.create_task(self._write(partition), name=f"cancels {partition}")

    async def _write(self, partition: int) -> None:
        try:
            while partition in self._owned and (cancels := self._waiting.pop(partition, None)):
                try:
                    await self._end(partition, cancels)
                except BrokerError as error:
                    log.warning("postprocess.cancel_again", partition=partition, error=str(error))
                    self._waiting[partition] = cancels | self._waiting.get(partition, {})
                    await asyncio.sleep(RETRY_S)
        except Exception:
            log.exception("postprocess.cancels_failed", partition=partition)
        finally:
            self._waiting.pop(partition, None)
            del self._writing[partition]

    async def _end(self, partition: int, cancels: dict[str, Cancel]) -> None:
        owned = self._owned[partition]
        found = await asyncio.gather(*(_ends(owned, key, cancel) for key, cancel in cancels.items()))
        ends = [end for each in found for end in each]
        for first in range(0, len(ends), ENDS_PER_MESSAGE):
            message = JournalMessage(origin=self._origin, ends=ends[first : first + ENDS_PER_MESSAGE])
            await self._journal.append(partition, message)


async def _ends(owned: OwnedPartition, key: str, cancel: Cancel) -> list[End]:
    """An `end` for each choice that is open. Where nothing is known of the request, for its first one.

    Choices that only preprocess or a scheduler knows of are ended by them.
    """
    try:
        history = await owned.history(key, cancel.session)
    except WireError:  # of a version that we do not read: what is open here is known all the same
        history = []
    known = {result.choice for result in history}.union(owned.open_choices(key)) or {0}
    ended = {result.choice for result in history if result.terminal}
    return [
        End(key=key, choice=choice, session=cancel.session, fault=CANCELLED, encoding=cancel.encoding)
        for choice in sorted(known - ended)
    ]
