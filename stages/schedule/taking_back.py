"""What a silent worker held goes to others: by way of the journals, whose owners count deaths and let tickets go."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import structlog

from broker.connection import BrokerError
from schemas.journal import Released
from stages.schedule.granted import Granted
from stages.schedule.journal_lane import JournalLane

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A ticket that a silent worker had, and what its journal is told."""

    granted: Granted
    released: Released


class TakingBack:
    """All partitions at once. `nak` hands the ticket behind an ack subject to the next puller."""

    def __init__(self, lanes: list[JournalLane], nak: Callable[[str], Awaitable[None]]) -> None:
        self._lanes = lanes
        self._nak = nak

    async def carry_out(self, tickets: Iterable[TakenBack]) -> None:
        """Raises nothing: where a journal takes no entry, its tickets are handed back from here, uncounted."""
        by_partition: dict[int, list[TakenBack]] = {}
        for one in tickets:
            by_partition.setdefault(one.granted.partition, []).append(one)
        await asyncio.gather(*(self._tell(partition, some) for partition, some in by_partition.items()))

    async def _tell(self, partition: int, tickets: list[TakenBack]) -> None:
        try:
            await self._lanes[partition].submit(released=[one.released for one in tickets])
        except BrokerError:  # logged where it happened
            await self._hand_back(tickets)

    async def _hand_back(self, tickets: list[TakenBack]) -> None:
        for one in tickets:
            try:
                await self._nak(one.granted.ack_subject)
            except BrokerError as error:
                log.warning("schedule.not_handed_back", error=str(error))  # it comes back after the ack wait
