"""One model's scheduler with everything around it in memory."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from schemas.control import WorkerState
from schemas.journal import OpenReply
from schemas.ticket import Ticket
from stages.schedule.cached_blocks import CachedBlocks
from stages.schedule.dispatch import Dispatcher
from stages.schedule.grants import Granter
from stages.schedule.journal_lane import JournalLane
from stages.schedule.scheduler import Scheduler
from stages.schedule.settings import ScheduleSettings
from stages.telemetry import Telemetry
from tests.unit.schedule.stand_ins import MODEL, MemoryJournal, MemoryQueue, MemoryWorkers, delivery, status

PARTITIONS = 2


@dataclass
class Bench:
    """`later` is how far the scheduler's clock is ahead of the loop's."""

    workers: MemoryWorkers
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    queue: MemoryQueue = field(default_factory=MemoryQueue)
    cancelled: set[str] = field(default_factory=set[str])
    later: float = 0.0

    def __post_init__(self) -> None:
        lanes = [JournalLane(self.journal, number, "s1") for number in range(PARTITIONS)]
        self.telemetry = Telemetry("schedule", "s1", environ={})
        self.scheduler = Scheduler(
            MODEL,
            ScheduleSettings(),
            lanes=lanes,
            queue=self.queue,
            inbox="inbox",
            cancelled=self.cancelled,
            cached=CachedBlocks(),
        )
        self.tasks: set[asyncio.Task[None]] = set()
        self.dispatcher = Dispatcher(
            model=MODEL,
            window=self.scheduler.window,
            granted=self.scheduler.granted,
            lanes=lanes,
            granter=Granter(self.workers, "s1", 1.0),
            queue=self.queue,
            telemetry=self.telemetry,
            spawn=self.spawn,
            wake=lambda: None,
            open_answer_s=2.0,
            clock=lambda: self.now,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time() + self.later

    def pull(self, ticket: Ticket, sequence: int, *, deliveries: int = 1, age_s: float = 0.0) -> None:
        self.scheduler.pulled(delivery(ticket, sequence, deliveries=deliveries, age_s=age_s), self.now)

    def beat(self, *, held: list[int] | None = None, state: WorkerState = "ready") -> None:
        """A heartbeat of every worker."""
        for worker, slots in self.workers.slots.items():
            self.scheduler.heard(status(worker, slots=slots, held=held, state=state), self.now)

    def answer(self, sequence: int, ids: bytes = b"", *, ended: bool = False, deaths: int = 0) -> None:
        """The owner's answer to the last open of a ticket."""
        written = [
            (attempt, entry)
            for attempt, (_, message) in enumerate(self.journal.messages, start=1)
            for entry in message.opens
            if entry.sequence == sequence
        ]
        attempt, last = written[-1]
        self.scheduler.answered(last.reply, OpenReply(attempt, ended, ids, deaths))

    async def tick(self) -> None:
        """One tick, everything that follows from it included (unless a partition is held up)."""
        self.begin_tick()
        while self.tasks and not self.journal.gate:
            await asyncio.wait(list(self.tasks))
        if self.journal.gate:
            await asyncio.sleep(0.1)

    def begin_tick(self) -> None:
        work = self.scheduler.tick(self.now)
        if work:
            self.spawn(self.dispatcher.carry_out(work))


def bench(**slots: int) -> Bench:
    """With these workers and their free slots, heard of already."""
    one = Bench(MemoryWorkers(slots))
    one.beat()
    return one
