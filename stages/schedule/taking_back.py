"""What a silent worker held goes to others: by way of the journals, whose owners count deaths and let tickets go."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from broker.connection import BrokerError
from schemas.journal import Alive, Released
from stages.schedule.granted import Granted
from stages.schedule.journal_lane import JournalLane

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TakenBack:
    """A ticket that a silent worker had, and what its journal is told."""

    granted: Granted
    released: Released


@dataclass(frozen=True, slots=True)
class Silence:
    """A worker that has fallen silent, and what it had from this scheduler."""

    worker: str
    tickets: list[TakenBack]


class TakingBack:
    """All partitions at once. `nak` hands the ticket behind an ack subject to the next puller."""

    def __init__(self, lanes: list[JournalLane], nak: Callable[[str], Awaitable[None]]) -> None:
        self._lanes = lanes
        self._nak = nak

    async def carry_out(self, silences: Sequence[Silence]) -> None:
        """Raises nothing: where a journal takes no entry, its tickets are handed back from here, uncounted.

        Every partition hears of the workers: they may have tickets of another scheduler that is gone as well.
        """
        workers = [silence.worker for silence in silences]
        of_partition: list[list[TakenBack]] = [[] for _ in self._lanes]
        for silence in silences:
            for one in silence.tickets:
                of_partition[one.granted.partition].append(one)
        await asyncio.gather(*(self._tell(number, workers, tickets) for number, tickets in enumerate(of_partition)))

    async def acquit(self, granted: Sequence[Granted]) -> None:
        """These did not die: their worker is heard again. Where a journal takes no entry, the death stays counted."""
        by_partition: dict[int, list[Alive]] = {}
        for one in granted:
            by_partition.setdefault(one.partition, []).append(Alive(one.key, one.choice, one.attempt))
        telling = (self._lanes[partition].submit(alive=entries) for partition, entries in by_partition.items())
        for outcome in await asyncio.gather(*telling, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, BrokerError):
                raise outcome

    async def _tell(self, partition: int, workers: list[str], tickets: list[TakenBack]) -> None:
        try:
            await self._lanes[partition].submit(released=[one.released for one in tickets], silent=workers)
        except BrokerError:  # logged where it happened
            await self._hand_back(tickets)

    async def _hand_back(self, tickets: list[TakenBack]) -> None:
        for one in tickets:
            try:
                await self._nak(one.granted.ack_subject)
            except BrokerError as error:
                log.warning("schedule.not_handed_back", error=str(error))  # it comes back after the ack wait
