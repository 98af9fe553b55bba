"""What stages and clients do with the broker all the time, over one connection, so that a test can break it below."""

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from broker import subjects
from broker.cancels import Cancels, put_cancel
from broker.connection import Connection, Unavailable
from broker.journal import JournalReader, JournalWriter
from broker.leases import Leases
from broker.publisher import Publisher
from broker.results import Outgoing, ResultHistory, ResultWriter
from broker.topology import TopologySettings, ensure_schedule_consumer
from broker.work_queue import Delivery, WorkQueue
from schemas.codec import encode
from schemas.control import Cancel
from schemas.faults import Fault
from schemas.journal import End, JournalMessage
from schemas.result import Result

CLUSTERED = TopologySettings(partitions=2, replicas=3, request_ack_wait_s=5.0, ticket_ack_wait_s=15.0)
PAUSE_S = 0.01
ROUND = 5
PATIENCE_S = 30.0
DOINGS = frozenset(
    {"append", "read", "publish", "handle", "ack", "schedule", "put cancel", "see cancel", "store round", "history"}
)


class Life:
    """Everything at once; `done` counts how often each of `DOINGS` succeeded. `stop` first, then look at the rest."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.done: Counter[str] = Counter()
        self.appended = 0
        self.read: list[int] = []
        self.published = 0
        self.handled: dict[int, list[int]] = {}
        self.unfinished: list[str] = []
        self.owned: set[int] = set()
        self._stopping = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._tickets = self._queue(subjects.TICKETS, "schedule_m", CLUSTERED.ticket_ack_wait_s)
        self._requests = self._queue(subjects.REQUESTS, subjects.PREPROCESS_CONSUMER, CLUSTERED.request_ack_wait_s)
        self._reader = JournalReader(connection, 0)
        self._cancels = Cancels(connection)
        self._leases = Leases(connection, 2, "owner", on_gained=self._gained, on_lost=self._lost)

    async def start(self) -> None:
        """Returns once everything was done a few times."""
        await self._cancels.start(self._on_cancel)
        await self._leases.start()
        await self._reader.start()
        await self._tickets.start()
        await self._requests.start()
        for doing in (self._read(), self._handle(), self._schedule()):
            self._run(doing)
        writing = (self._append(), self._publish(), self._put_cancels(), self._store_rounds())
        self._writing = [self._run(doing) for doing in writing]
        await self.goes_on()

    async def goes_on(self, times: int = 20, within_s: float = PATIENCE_S) -> float:
        """Waits until each was done `times` times more; the seconds that it took. Fails with the one that is stuck."""
        begin, before = time.monotonic(), Counter(self.done)
        while stuck := [name for name in DOINGS if self.done[name] < before[name] + times]:
            self._raise_what_ended()
            assert time.monotonic() - begin < within_s, f"not within {within_s} s: {stuck}"
            await asyncio.sleep(0.05)
        return time.monotonic() - begin

    async def stop(self) -> None:
        """Publishes nothing more, and returns when all that was published is worked off."""
        self._stopping.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._writing)
        deadline = time.monotonic() + PATIENCE_S
        while len(self.handled) < self.published or len(set(self.read)) < self.appended:
            self._raise_what_ended()
            assert time.monotonic() < deadline, (len(self.handled), self.published, len(self.read), self.appended)
            await asyncio.sleep(0.05)
        await self.abandon()

    async def abandon(self) -> None:
        """Ends at once."""
        for part in (self._requests, self._tickets, self._leases):
            await part.abandon()
        await self._reader.stop()
        await self._cancels.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def _queue(self, stream: str, consumer: str, ack_wait_s: float) -> WorkQueue:
        async def ensure() -> None:
            await ensure_schedule_consumer(self.connection, "m")

        own = ensure if stream == subjects.TICKETS else None
        return WorkQueue(self.connection, stream, consumer, slots=32, ack_wait_s=ack_wait_s, ensure=own)

    def _run(self, doing: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(doing)
        self._background.add(task)
        return task

    def _raise_what_ended(self) -> None:
        for task in self._background:
            if task.done() and not task.cancelled() and task.exception() is not None:
                task.result()

    async def _append(self) -> None:
        writer = JournalWriter(self.connection)
        while not self._stopping.is_set():
            await writer.append(0, _entry(self.appended), timeout_s=60)
            self.appended += 1
            self.done["append"] += 1
            await asyncio.sleep(PAUSE_S)

    async def _read(self) -> None:
        async for records in self._reader.rounds():
            self.read += [int(r.message.ends[0].key[2:]) for r in records if r.message is not None]
            self.done["read"] += 1

    async def _publish(self) -> None:
        publisher = Publisher(self.connection)
        while not self._stopping.is_set():
            name = f"t.{self.published}"
            await publisher.publish_patiently("hr.request.t.m", b"", message_id=name)
            self.published += 1
            self.done["publish"] += 1
            await asyncio.sleep(PAUSE_S)

    async def _handle(self) -> None:
        async for batch in self._requests.batches():
            for delivery in batch:
                self._run(self._pass_on(delivery))

    async def _pass_on(self, delivery: Delivery) -> None:
        """As preprocess does: a ticket first, then the acknowledgement."""
        number = int(delivery.message_id[2:])
        await Publisher(self.connection).publish_patiently(
            subjects.ticket("m", "t"), str(number).encode(), message_id=f"{delivery.message_id}.0"
        )
        self.done["handle"] += 1
        await self._ack(self._requests, delivery)

    async def _ack(self, queue: WorkQueue, delivery: Delivery) -> None:
        try:
            await queue.ack(delivery)
        except Unavailable as error:
            self.unfinished.append(str(error))
        self.done["ack"] += 1

    async def _schedule(self) -> None:
        async for batch in self._tickets.batches():
            for delivery in batch:
                self.handled.setdefault(int(delivery.data), []).append(delivery.deliveries)
                self.done["schedule"] += 1
                self._run(self._ack(self._tickets, delivery))

    async def _put_cancels(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                return
            with contextlib.suppress(Unavailable):  # a client is told so when there is no majority for long
                await put_cancel(self.connection, f"t.{number}", Cancel("s"))
                self.done["put cancel"] += 1
            await asyncio.sleep(PAUSE_S)

    async def _on_cancel(self, _key: str, _cancel: Cancel) -> None:
        self.done["see cancel"] += 1

    async def _store_rounds(self) -> None:
        """As an owner does; each is looked up right after it is stored, as a successor may."""
        writer, history = ResultWriter(self.connection, 1), ResultHistory(self.connection, 1)
        for number in itertools.count():
            if self._stopping.is_set():
                return
            await writer.publish_round([result_of(number, at) for at in range(ROUND)])
            self.done["store round"] += 1
            found = await _patiently(history, f"r{number}")
            assert [result.at for result in found][-ROUND:] == list(range(ROUND))
            self.done["history"] += 1
            await asyncio.sleep(PAUSE_S)

    async def _gained(self, partition: int) -> None:
        self.owned.add(partition)

    async def _lost(self, partition: int) -> None:
        self.owned.discard(partition)


def _entry(number: int) -> JournalMessage:
    end = End(key=f"t.{number}", choice=0, session="s", fault=Fault("internal", ""))
    return JournalMessage(origin="test", ends=[end])


def result_of(number: int, at: int) -> Outgoing:
    result = Result(choice=0, attempt=1, at=at, token_from=at, token_to=at + 1)
    return Outgoing(subjects.result(1, "t", "s", f"r{number}"), encode(result), "")


async def _patiently(history: ResultHistory, request: str) -> list[Result]:
    """As the owner of a partition: while the broker does not answer it asks again."""
    while True:
        try:
            return await history.of("t", "s", request)
        except Unavailable:
            await asyncio.sleep(0.1)
