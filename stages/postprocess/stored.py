"""The owner's lookups, on the broker."""

import asyncio

from broker import subjects
from broker.connection import Connection
from broker.results import ResultHistory
from broker.work_queue import ticket_by_sequence
from schemas.codec import decode
from schemas.result import Result
from schemas.ticket import Ticket
from stages.postprocess.lookups import ANY_SESSION
from stages.postprocess.spec import Spec
from stages.postprocess.vocabularies import Vocabularies
from stages.postprocess.vocabulary import Vocabulary


class StoredLookups:
    """`lookups.Lookups` for one partition. `limit` bounds the lookups in flight, of all partitions together."""

    def __init__(
        self, connection: Connection, partition: int, vocabularies: Vocabularies, limit: asyncio.Semaphore
    ) -> None:
        self._connection = connection
        self._partition = partition
        self._history = ResultHistory(connection, partition)
        self._vocabularies = vocabularies
        self._limit = limit

    async def history(self, key: str, session: str) -> list[Result]:
        """As `Lookups.history`. A request without results, the usual case, costs one round trip."""
        tenant, _, request = key.partition(".")
        async with self._limit:
            if session != ANY_SESSION:
                subject = subjects.result(self._partition, tenant, session, request)
                if not await self._history.exists(subject):
                    return []
            return await self._history.of(tenant, session, request)

    async def ticket(self, sequence: int) -> Spec | None:
        """As `Lookups.ticket`."""
        async with self._limit:
            stored = await ticket_by_sequence(self._connection, sequence)
        return Spec.of(decode(Ticket, stored[0]), self._partition) if stored is not None else None

    async def vocabulary(self, model: str) -> Vocabulary:
        """As `Lookups.vocabulary`."""
        return await self._vocabularies.of(model)
