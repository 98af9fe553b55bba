"""One partition while this replica owns it: read, work, publish, tell the others, purge."""

import asyncio
import contextlib

import structlog

from broker import subjects
from broker.connection import BrokerError, Connection
from broker.journal import JournalReader, JournalRecord, purge
from broker.results import ResultWriter
from broker.work_queue import nak
from schemas.codec import encode
from schemas.control import Drop
from schemas.result import Result
from stages.postprocess.acks import TicketAcks
from stages.postprocess.burials import Burials
from stages.postprocess.effects import Effects
from stages.postprocess.lag import Lag
from stages.postprocess.lookups import Lookups
from stages.postprocess.measures import Measures
from stages.postprocess.owner import Owner
from stages.postprocess.settings import PostprocessSettings

RETRY_S = 0.1
START_AGAIN_S = 1.0

log = structlog.get_logger()


class PartitionReader:
    """Starts with nothing in memory: what is open shows in the journal and the stored results."""

    def __init__(
        self,
        connection: Connection,
        partition: int,
        *,
        lookups: Lookups,
        measures: Measures,
        acks: TicketAcks,
        burials: Burials,
        settings: PostprocessSettings,
    ) -> None:
        self.partition = partition
        self._connection = connection
        self._lookups = lookups
        self._measures = measures
        self._acks = acks
        self._burials = burials
        self._settings = settings
        self._owner = self._new_owner()
        self._reader = JournalReader(connection, partition)
        self._writer = ResultWriter(connection, partition)
        self.lag = Lag()
        self._stopping = False
        self._done = 0
        self._purged = 0
        self._progress = asyncio.Event()

    @property
    def open_count(self) -> int:
        """How many choices are open, as far as their entries have been read."""
        return self._owner.open_count

    def open_choices(self, key: str) -> list[int]:
        """The open choices of a request."""
        return self._owner.open_choices(key)

    async def history(self, key: str, session: str) -> list[Result]:
        """The stored results of a request. Raises `BrokerError`, `WireError`."""
        return await self._lookups.history(key, session)

    def start(self) -> None:
        """Begins to read at the first message of the journal."""
        self._reading = asyncio.create_task(self._run(), name=f"partition {self.partition}")
        self._purging = asyncio.create_task(self._keep_purging(), name=f"purge {self.partition}")

    async def stop(self) -> None:
        """Finishes the round in hand, purges, and lets go. A round that takes too long is left to the next owner."""
        self._stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.handover_s):
                await self._reader.stop()
                await asyncio.wait({self._reading})
        self._reading.cancel()
        self._purging.cancel()
        await asyncio.gather(self._reading, self._purging, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.handover_s):
                await self._purge()

    def _new_owner(self) -> Owner:
        return Owner(
            self.partition,
            self._lookups,
            self._measures,
            max_result_bytes=self._connection.max_payload,
            remembered_ends=self._settings.remembered_ends,
        )

    async def _run(self) -> None:
        """Reads until `stop`. What stops it otherwise is a bug: then it starts over from what is stored."""
        while not self._stopping:
            try:
                await self._read()
            except Exception:
                log.exception("postprocess.partition_failed", partition=self.partition)
                await self._reader.stop()
                await asyncio.sleep(START_AGAIN_S)
                self._owner = self._new_owner()
                self._reader = JournalReader(self._connection, self.partition)

    async def _read(self) -> None:
        await self._reader.start()
        async for records in self._reader.rounds():
            self.lag.came(records)
            for first in range(0, len(records), self._settings.round_records):
                await self._round(records[first : first + self._settings.round_records])

    async def _round(self, records: list[JournalRecord]) -> None:
        self.lag.began(records[0])
        effects = await self._worked_on(records)
        if effects.results:
            await self._writer.publish_round(effects.results)
        for ack in effects.acks:
            self._acks.submit(ack)
        for letter, ack in effects.letters:
            self._burials.submit(letter, ack)
        try:
            await self._tell(effects)
        except BrokerError as error:  # each has a time-out somewhere that makes up for it
            log.warning("postprocess.untold", partition=self.partition, error=str(error))
        self._done = records[-1].sequence
        self.lag.done(records[-1])
        self._progress.set()

    async def _worked_on(self, records: list[JournalRecord]) -> Effects:
        while True:
            try:
                return await self._owner.work(records)
            except BrokerError as error:
                log.warning("postprocess.lookups_failed", partition=self.partition, error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _tell(self, effects: Effects) -> None:
        for inbox, reply in effects.replies:
            await self._connection.publish(inbox, encode(reply))
        for worker, items in effects.drops.items():
            await self._connection.publish(subjects.drop(worker), encode(Drop(items)))
        for ack in effects.naks:
            await nak(self._connection, ack)

    async def _keep_purging(self) -> None:
        while True:
            await self._progress.wait()
            self._progress.clear()
            await self._purge()
            await asyncio.sleep(self._settings.purge_interval_s)

    async def _purge(self) -> None:
        """The journal's first sequence is the commit: everything before it stands in results."""
        done = self._done
        if done == self._purged:
            return
        try:
            await purge(self._connection, self.partition, done)
        except BrokerError as error:
            log.debug("postprocess.purge_failed", partition=self.partition, error=str(error))
            self._progress.set()
        else:
            self._purged = done
