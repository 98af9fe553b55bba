"""The postprocess stage: this replica's share of the partitions, from their journals to their results."""

import asyncio
from collections.abc import Callable

from broker.cancels import Cancels
from broker.journal import JournalWriter
from broker.leases import Leases
from stages.lifecycle import StageContext
from stages.postprocess.acks import TicketAcks
from stages.postprocess.burials import Burials
from stages.postprocess.cancelling import CancelledRequests
from stages.postprocess.lag import Lag
from stages.postprocess.measures import Telemetered
from stages.postprocess.partition import PartitionReader
from stages.postprocess.settings import PostprocessSettings
from stages.postprocess.stored import StoredLookups
from stages.postprocess.vocabularies import Vocabularies
from stages.telemetry import Readings, Telemetry

LAST_ACKS_S = 2.0


async def run(context: StageContext, settings: PostprocessSettings) -> None:
    """Reads its partitions until a stop is asked for; returns when each is handed over. Raises `BrokerError`."""
    stage = Postprocess(context, settings)
    try:
        await stage.start()
        context.set_ready(True)
        await context.stopping.wait()
    finally:
        context.set_ready(False)
        await stage.stop()


class Postprocess:
    """One replica. `start` may fail; `stop` is to be called all the same."""

    def __init__(self, context: StageContext, settings: PostprocessSettings) -> None:
        connection, partitions = context.connection, context.topology.partitions
        self._connection = connection
        self._settings = settings
        self._owned: dict[int, PartitionReader] = {}
        self._limit = asyncio.Semaphore(settings.lookups)
        self._measures = Telemetered(context.telemetry)
        self._acks = TicketAcks(connection)
        self._burials = Burials(connection, self._acks, self._measures.buried)
        self._vocabularies = Vocabularies(connection)
        self._cancels = Cancels(connection)
        self._cancelled = CancelledRequests(JournalWriter(connection), context.instance, partitions, self._owned)
        self._leases = Leases(connection, partitions, context.instance, on_gained=self._gained, on_lost=self._lost)
        self._leasing = False
        self._show_gauges(context.telemetry)

    async def start(self) -> None:
        """What every partition needs first, then the share of them. Raises `BrokerError`."""
        await self._vocabularies.start()
        await self._cancels.start(self._cancelled.on_cancel)
        await self._leases.start()
        self._leasing = True

    async def stop(self) -> None:
        """Each partition finishes its round and goes to the other replicas."""
        if self._leasing:
            await self._leases.stop()
        await self._cancels.stop()
        await self._cancelled.stop()
        await self._burials.finish(LAST_ACKS_S)
        await self._acks.finish(LAST_ACKS_S)
        await self._vocabularies.stop()

    async def _gained(self, partition: int) -> None:
        reader = PartitionReader(
            self._connection,
            partition,
            lookups=StoredLookups(self._connection, partition, self._vocabularies, self._limit),
            measures=self._measures,
            acks=self._acks,
            burials=self._burials,
            settings=self._settings,
        )
        self._owned[partition] = reader
        reader.start()
        self._cancelled.gained(partition)

    async def _lost(self, partition: int) -> None:
        await self._owned.pop(partition).stop()

    def _show_gauges(self, telemetry: Telemetry) -> None:
        telemetry.gauge("open_choices", "Answers that grow", lambda: [(self._open_count(), {})])
        telemetry.gauge("owned_partitions", "Partitions read here", lambda: [(len(self._owned), {})])
        messages, seconds = self._of_each(lambda lag: lag.messages), self._of_each(lambda lag: lag.seconds)
        telemetry.gauge("journal_lag", "Messages of a journal that are not dealt with", messages)
        telemetry.gauge("journal_delay", "Age of the oldest message in hand", seconds, "s")

    def _of_each(self, read: Callable[[Lag], float]) -> Callable[[], Readings]:
        return lambda: [(read(reader.lag), {"partition": str(each)}) for each, reader in list(self._owned.items())]

    def _open_count(self) -> int:
        return sum(reader.open_count for reader in list(self._owned.values()))
