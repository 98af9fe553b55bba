"""Whether a request that is ready goes on: before its first ticket is stored, and never again after that."""

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import structlog

from broker import subjects
from broker.connection import Connection, Inbound, Subscription
from broker.results import Filling, filling
from schemas.backlog import Backlog
from schemas.codec import WireError, decode
from schemas.faults import RequestFault
from stages.histograms import Counts
from stages.lifecycle import StageContext
from stages.preprocess.backlog import Backlogs, ticket_tokens
from stages.preprocess.parking import NoRoomError
from stages.preprocess.passage import Passage
from stages.preprocess.preparation import Ready
from stages.preprocess.room import ResultsRoom
from stages.preprocess.settings import PreprocessSettings
from stages.telemetry import Readings

log = structlog.get_logger()

LEAST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0


def _ignore(_: str) -> None:
    pass


@dataclass(kw_only=True)
class Admission:
    """`has_room` tells of a partition whether it takes new requests; `partitions` is how many there are.

    `max_wait_s` bounds the wait beside the deadline (0: nothing does). `on_refused` is told the model of each request
    that would have waited too long.
    """

    has_room: Callable[[int], Awaitable[bool]]
    partitions: int
    backlogs: Backlogs = field(default_factory=Backlogs)
    max_wait_s: float = 0.0
    on_refused: Callable[[str], None] = _ignore

    async def listen(self, connection: Connection) -> Subscription:
        """Hears of the backlogs of all models, until the subscription is closed."""
        return await connection.listen(subjects.backlog("*"), self._on_message)

    def _on_message(self, message: Inbound) -> None:
        try:
            self.backlogs.hear(decode(Backlog, message.data))
        except WireError as error:
            log.debug("preprocess.backlog_unreadable", subject=message.subject, error=str(error))

    async def admit(self, passage: Passage, ready: Ready) -> None:
        """Raises the `RequestFault` `busy` where the answer would have no room, or would come too late.

        One that was delivered before may have its tickets already, and an answer that has begun is never refused: it
        raises `NoRoomError` where there is no room, then it comes again later, and it may take its time.
        """
        partition = subjects.partition_of(passage.key(ready.request.id), self.partitions)
        first = passage.delivery.deliveries == 1
        if not await self.has_room(partition):
            if not first:
                raise NoRoomError(subjects.results_stream(partition))
            raise RequestFault("busy", "no room for the results of another answer now; try later, with a new id")
        if first:
            self._refuse_long_wait(passage, ready)

    def published(self, passage: Passage, ready: Ready, tickets: int) -> None:
        """So many of its tickets are stored: the next requests wait behind them."""
        self.backlogs.published(passage.slug, passage.tenant, tickets * _tokens(ready))

    def _refuse_long_wait(self, passage: Passage, ready: Ready) -> None:
        """One whose time is over already is told that instead, by who publishes it."""
        wait_s = self.backlogs.wait_s(passage.slug, passage.tenant, _tokens(ready))
        left_s = passage.delivery.stored_at + ready.request.deadline_s - time.time()
        bound_s, bound = left_s, f"the deadline is in {left_s:.0f} s"
        if 0 < self.max_wait_s < left_s:
            bound_s, bound = self.max_wait_s, f"at most {self.max_wait_s:g} s are allowed"
        if wait_s is None or bound_s <= 0 or wait_s <= bound_s:
            return
        self.on_refused(passage.slug)
        again_s = min(max(LEAST_RETRY_S, wait_s - bound_s), LONGEST_RETRY_S)
        reason = f"about {wait_s:.0f} s of work wait, {bound}; try again in {again_s:.0f} s, with a new id"
        raise RequestFault("busy", reason, retry_after=again_s)


def _tokens(ready: Ready) -> int:
    """Of one of its tickets."""
    return ticket_tokens(len(ready.prompt) // 4, ready.sampling.max_tokens)


def admission(
    context: StageContext, settings: PreprocessSettings, longest_s: float, models: Callable[[], Iterable[str]]
) -> Admission:
    """That of a running stage, with a gauge and a counter. `longest_s` is the longest deadline.

    `models` are the slugs of those served: the counter begins at 0 for each, so that the first refusal shows.
    """
    refusals = Counts("model")

    def readings() -> Readings:
        counted = {labels["model"]: count for count, labels in refusals.read()}
        return [(count, {"model": slug}) for slug, count in (dict.fromkeys(models(), 0.0) | counted).items()]

    context.telemetry.counted("backlog_refusals", "Requests refused because they would have waited too long", readings)
    return Admission(
        has_room=_room(context, longest_s).has_room,
        partitions=context.topology.partitions,
        max_wait_s=settings.max_wait_s,
        on_refused=lambda model: refusals.add(1, model),
    )


def _room(context: StageContext, longest_s: float) -> ResultsRoom:
    """With a gauge of the partitions that have none."""

    async def look(partition: int) -> Filling:
        return await filling(context.connection, partition)

    room = ResultsRoom(look, longest_s, limit=context.topology.results_max_bytes)

    def readings() -> list[tuple[float, dict[str, str]]]:
        return [(room.closed, {})]

    context.telemetry.gauge("closed_partitions", "Partitions whose results have no room for new answers", readings)
    return room
