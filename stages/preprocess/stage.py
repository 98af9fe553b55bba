"""The preprocess stage: requests from REQUESTS, tickets to TICKETS."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack

import structlog

from broker import subjects
from broker.cancels import Cancels
from broker.journal import JournalWriter
from broker.publisher import Publisher
from broker.registry import Registry
from broker.work_queue import WorkQueue
from schemas.control import Cancel
from schemas.faults import Fault
from schemas.request import MAX_DEADLINE_S
from stages.lifecycle import StageContext
from stages.preprocess.admission import admission
from stages.preprocess.ends import Ends
from stages.preprocess.intake import Intake
from stages.preprocess.isolation import Isolation
from stages.preprocess.lanes import Lanes
from stages.preprocess.model import LoadedModel
from stages.preprocess.models import Models
from stages.preprocess.parking import Parking
from stages.preprocess.preparation import Incoming, Outcome, Preparation
from stages.preprocess.reporting import Reporter, count_segments
from stages.preprocess.settings import PreprocessSettings
from stages.preprocess.tokenizer_service import TokenizerService

log = structlog.get_logger()

READY_CHECK_S = 0.1
RENEW_EVERY_S = 2.0
SWITCH_INTERVAL_S = 0.0005
STUCK_S = 60.0
PARKED_SHARE = 2
"""One in so many slots is for requests that have room."""

GATHER_ACKS_S = 0.1
"""A request whose tickets are stored waits so long to be taken out of the queue, together with others. That also keeps
a queue under load from being empty again and again: the broker would take a file away and make one for every message.
"""

STOP_MARGIN_S = 0.5
"""Of the grace time, for handing back what did not get ready."""


async def run(context: StageContext, settings: PreprocessSettings) -> None:
    """Until `context.stopping` is set and what is in hand is settled or given back. Raises what ends the queue."""
    # A batch is encoded by the one thread that has it: replicas share the cores, threads of the tokenizer's own do not.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    async with AsyncExitStack() as stack:
        # A thread that prepares holds the interpreter for that long before the loop gets it back (5 ms by default).
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        stage = await PreprocessStage.start(context, settings, stack)
        await stage.work()


class StuckError(Exception):
    """A thread does not come back from a request. Another process has to try; see `isolation`."""


class PreprocessStage:
    """A running replica."""

    def __init__(
        self,
        context: StageContext,
        queue: WorkQueue,
        intake: Intake,
        lanes: Lanes[Incoming, Outcome],
        tokenizers: TokenizerService,
    ) -> None:
        self._context = context
        self._lanes = lanes
        self._tokenizers = tokenizers
        self._queue = queue
        self._intake = intake
        self._in_hand: set[asyncio.Task[None]] = set()
        context.telemetry.gauge("requests_in_hand", "Requests taken, not settled", lambda: [(len(self._in_hand), {})])

    @classmethod
    async def start(
        cls, context: StageContext, settings: PreprocessSettings, stack: AsyncExitStack
    ) -> "PreprocessStage":
        """Watches models and cancels, and puts everything together; `stack` ends it."""
        cancels, registry = Cancels(context.connection), Registry(context.connection)
        isolation = Isolation(registry.files)
        models, tokenizers = _tokenizers(context, registry, settings)
        preparation = Preparation(cancels.__contains__, _longest_s(context))
        lanes: Lanes[Incoming, Outcome] = Lanes(preparation.prepare, settings)
        ends = Ends(JournalWriter(context.connection).append, context.instance)
        for part in (models, isolation, ends):
            stack.push_async_callback(part.close)
        stack.callback(lanes.close)
        stack.callback(tokenizers.close)
        queue = _queue(context, settings)
        intake = Intake(
            queue=queue,
            stream=Publisher(context.connection),
            ends=ends,
            models=models,
            prepare=lanes.do,
            survives=isolation.survives,
            parking=_parking(context, settings),
            admission=admission(context, settings, _longest_s(context), models.loaded),
            cancelled=cancels,
            reporter=Reporter(context.telemetry),
            partitions=context.topology.partitions,
            max_payload=context.connection.max_payload,
            model_patience_s=settings.model_patience_s,
            longest_s=_longest_s(context),
        )
        await tokenizers.start()
        await _watch(cancels, registry, intake, stack)
        stack.push_async_callback((await intake.admission.listen(context.connection)).close)
        return cls(context, queue, intake, lanes, tokenizers)

    async def work(self) -> None:
        """Takes requests until the stage is told to stop; then what is in hand ends, or goes back."""
        await self._queue.start()
        pulling = asyncio.create_task(self._pull(), name="pull requests")
        renewing = asyncio.create_task(self._renew(), name="put off what waits outside")
        watching = asyncio.create_task(self._watch_itself(), name="watch preprocess")
        stopping = asyncio.create_task(self._context.stopping.wait())
        grace_s = 0.0
        try:
            await asyncio.wait({pulling, watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (pulling, watching):
                if task.done():
                    task.result()  # raises what ended it
            grace_s = max(0.0, self._context.grace_s - STOP_MARGIN_S)
        finally:
            for task in (watching, renewing, stopping):
                task.cancel()
            self._context.set_ready(False)
            await asyncio.gather(self._tokenizers.stop(grace_s), self._drain(grace_s))
            await asyncio.gather(pulling, return_exceptions=True)

    async def _pull(self) -> None:
        async for batch in self._queue.batches():
            for delivery in batch:
                task = asyncio.create_task(self._intake.take(delivery))
                self._in_hand.add(task)
                task.add_done_callback(self._in_hand.discard)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            await self._intake.outside.renew()

    async def _watch_itself(self) -> None:
        """Tells readiness. Raises `StuckError`: what is in hand would be kept alive for ever by a stuck process."""
        while max(self._lanes.running_s(), self._tokenizers.running_s()) < STUCK_S:
            ready = self._queue.attached and self._context.connection.connected and not self._intake.models.coming
            self._context.set_ready(ready)
            await asyncio.sleep(READY_CHECK_S)
        raise StuckError(f"a batch of requests is not prepared after {STUCK_S:.0f} s")

    async def _drain(self, grace_s: float) -> None:
        """What waits goes back at once, another replica may have room; the others have the grace time."""
        await self._queue.stop()
        self._intake.call_off()
        await self._intake.outside.call_all()
        if self._in_hand:
            await asyncio.wait(self._in_hand, timeout=grace_s)
        for task in self._in_hand:
            task.cancel()
        for delivery in self._queue.held:
            await self._queue.nak(delivery, 0.0)
            log.info("preprocess.given_back", sequence=delivery.sequence, reason="stopping")


async def _watch(cancels: Cancels, registry: Registry, intake: Intake, stack: AsyncExitStack) -> None:
    async def on_cancel(key: str, _: Cancel) -> None:
        await intake.cancel(key)

    stack.push_async_callback(cancels.stop)
    await cancels.start(on_cancel)
    watch = await registry.watch(intake.models.on_card)
    stack.push_async_callback(watch.close)


def _tokenizers(
    context: StageContext, registry: Registry, settings: PreprocessSettings
) -> tuple[Models, TokenizerService]:
    """With counters of the segments of chats that were found, and of those that had to be encoded."""

    async def model_of(slug: str) -> LoadedModel | Fault:
        return await models.of(slug, settings.model_patience_s)

    service = TokenizerService(context.connection, context.instance, settings, model_of)
    # Unready at once: `headrace up` waits until all are ready together, and the first request would pay for loading.
    models = Models(
        registry.files,
        settings.segment_cache_bytes,
        on_new=lambda: context.set_ready(False),
        on_loaded=service.serve,
    )
    count_segments(context.telemetry, models.caches)
    return models, service


def _queue(context: StageContext, settings: PreprocessSettings) -> WorkQueue:
    # Where a tenant's queue is short, what is done with may not take its places.
    roomy = context.topology.requests_per_subject >= settings.slots
    return WorkQueue(
        context.connection,
        subjects.REQUESTS,
        subjects.PREPROCESS_CONSUMER,
        slots=settings.slots,
        ack_wait_s=context.topology.request_ack_wait_s,
        gather_acks_s=GATHER_ACKS_S if roomy else 0.0,
    )


def _parking(context: StageContext, settings: PreprocessSettings) -> Parking:
    """With a gauge of the requests in it."""
    parking = Parking(
        requests=settings.parked_requests, size=settings.parked_bytes, total=max(1, settings.slots // PARKED_SHARE)
    )

    def readings() -> list[tuple[float, dict[str, str]]]:
        return [(parking.parked, {})]

    context.telemetry.gauge("parked_requests", "Requests whose tickets have no room", readings)
    return parking


def _longest_s(context: StageContext) -> float:
    """An answer has to stay replayable for as long again as it took."""
    return min(MAX_DEADLINE_S, context.topology.results_max_age_s / 2)
