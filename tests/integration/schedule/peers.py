"""What a scheduler meets over NATS: workers that speak the grant protocol, and an owner that answers opens."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable

from broker.connection import Connection, Inbound
from broker.journal import JournalReader, purge
from broker.subjects import grant as grant_subject
from broker.subjects import worker as worker_subject
from broker.work_queue import confirm_ack, keep_alive, nak
from schemas.codec import decode, encode
from schemas.control import WorkerState, WorkerStatus
from schemas.grant import Credits, Grant, GrantItem, GrantReply
from schemas.journal import End, Open, OpenReply, Released

MODEL = "tiny"
KEEP_ALIVE_S = 0.5


class FakeWorker:
    """Takes what it has slots for, keeps it alive, and is done with a ticket after `work_s` (0: never by itself)."""

    def __init__(
        self, connection: Connection, name: str, *, slots: int, work_s: float = 0.0, model: str = MODEL
    ) -> None:
        self.name = name
        self._model = model
        self.state: WorkerState = "ready"
        self.held: dict[int, GrantItem] = {}
        self.grants: list[Grant] = []
        self.granted_at: dict[int, float] = {}
        self.most_held = 0
        self.answers = True
        self.answers_after_s = 0.0
        self.parked: list[int] = []
        self._connection = connection
        self._slots = slots
        self._work_s = work_s
        self._sent = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._subscription = await self._connection.subscribe(grant_subject(self.name), self._on_grant)
        await self._connection.prove_subscriptions()
        self._tasks.append(asyncio.create_task(self._beat_for_ever()))
        self._tasks.append(asyncio.create_task(self._keep_alive_for_ever()))

    async def die(self) -> None:
        """As by SIGKILL: no heartbeat, no sign of life for its tickets, no answer."""
        await self._subscription.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    @property
    def items(self) -> list[GrantItem]:
        return [item for grant in self.grants for item in grant.items]

    async def finish(self, sequence: int) -> None:
        """The answer has ended: its owner acknowledges the ticket, the slot is free and the next heartbeat says so."""
        item = self.held.pop(sequence, None)
        if item is not None:
            await confirm_ack(self._connection, item.ack)
            await self.beat()

    async def beat(self) -> None:
        self._sent += 1
        status = WorkerStatus(
            worker=self.name,
            model=self._model,
            state=self.state,
            credits=self._credits(),
            sent=self._sent,
            held=list(self.held),
            parked=self.parked,
            max_slots=self._slots,
        )
        await self._connection.publish(worker_subject(self._model, self.name), encode(status))

    def _credits(self) -> Credits:
        return Credits(self._slots - len(self.held), 100_000)

    async def _on_grant(self, message: Inbound) -> None:
        grant = decode(Grant, message.data)
        self.grants.append(grant)
        taken: list[int] = []
        for item in grant.items:
            if len(self.held) < self._slots:
                self._take(item)
                taken.append(item.sequence)
        self.most_held = max(self.most_held, len(self.held))
        if self.answers:
            await asyncio.sleep(self.answers_after_s)
            await self._connection.publish(message.reply, encode(GrantReply(taken, self._credits())))

    def _take(self, item: GrantItem) -> None:
        self.held[item.sequence] = item
        self.granted_at[item.sequence] = time.time()
        if self._work_s:
            self._tasks.append(asyncio.create_task(self._work(item.sequence)))

    async def _work(self, sequence: int) -> None:
        await asyncio.sleep(self._work_s)
        await self.finish(sequence)

    async def _beat_for_ever(self) -> None:
        while True:
            await self.beat()
            await asyncio.sleep(0.5)

    async def _keep_alive_for_ever(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            for item in list(self.held.values()):
                await keep_alive(self._connection, item.ack)


class FakeOwner:
    """Owns every partition: remembers opens and ends, answers what asks for it, acknowledges what has ended."""

    def __init__(self, connection: Connection, partitions: int) -> None:
        self.opens: list[tuple[int, Open]] = []
        self.ends: list[End] = []
        self.released: list[Released] = []
        self.answer: Callable[[Open], OpenReply | None] = lambda _: None
        self._connection = connection
        self._readers = [JournalReader(connection, partition) for partition in range(partitions)]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for partition, reader in enumerate(self._readers):
            await reader.start()
            self._tasks.append(asyncio.create_task(self._read(partition, reader)))

    async def stop(self) -> None:
        for reader in self._readers:
            await reader.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def opens_of(self, sequence: int) -> list[Open]:
        return [entry for _, entry in self.opens if entry.sequence == sequence]

    def attempts_of(self, sequence: int) -> list[int]:
        return [attempt for attempt, entry in self.opens if entry.sequence == sequence]

    @property
    def opened_more_than_once(self) -> list[int]:
        counts = Counter(entry.sequence for _, entry in self.opens)
        return [sequence for sequence, count in counts.items() if count > 1]

    async def _read(self, partition: int, reader: JournalReader) -> None:
        async for records in reader.rounds():
            for record in records:
                if record.message is None:
                    continue
                for entry in record.message.opens:
                    self.opens.append((record.sequence, entry))
                    await self._reply(record.sequence, entry)
                for released in record.message.released:
                    self.released.append(released)
                    await self._let_go(released)
                for end in record.message.ends:
                    self.ends.append(end)
                    await confirm_ack(self._connection, end.ack)
            await purge(self._connection, partition, records[-1].sequence)

    async def _let_go(self, released: Released) -> None:
        """The ticket of an attempt that is over, if it is the latest one."""
        attempt, entry = next((one for one in reversed(self.opens) if one[1].key == released.key), (0, None))
        if entry is not None and attempt == released.attempt:
            await nak(self._connection, entry.ack)

    async def _reply(self, attempt: int, entry: Open) -> None:
        answer = self.answer(entry)
        if entry.fresh or answer is None:
            return
        await self._connection.publish(entry.reply, encode(OpenReply(attempt, answer.ended, answer.ids, answer.deaths)))
        if answer.ended:
            await confirm_ack(self._connection, entry.ack)


async def until(condition: Callable[[], bool], within_s: float = 15.0) -> None:
    """Waits until it holds. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 — whatever a test waits for, it has no event
            await asyncio.sleep(0.01)


async def never(condition: Callable[[], bool], for_s: float) -> None:
    """Asserts that it does not hold at any moment."""
    with contextlib.suppress(TimeoutError):
        await until(condition, for_s)
        raise AssertionError("what must not happen happened")
