"""A partition's journal: appended to by whoever works on its requests, read in order and purged by its owner alone."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import structlog

from broker import subjects
from broker.connection import BrokerError, Connection, Inbound, Unavailable
from broker.jetstream_api import call
from broker.publisher import Publisher
from broker.pull import PullLoop
from schemas.codec import WireError, decode, encode
from schemas.journal import JournalMessage

log = structlog.get_logger()

TRY_S = 1.0
RETRY_S = 0.05
ROUND_LIMIT = 1000
INACTIVE_S = 30.0


class JournalWriter:
    """Appends to the journals of all partitions. Keep one append per partition running: the next would overtake it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._publisher = Publisher(connection)
        self._writer = secrets.token_hex(8)
        self._numbers = count()

    async def append(self, partition: int, message: JournalMessage, timeout_s: float = 5.0) -> int:
        """Stores `message`, exactly once however often it has to be sent; its sequence.

        Raises `Full`, `TooLarge` (before anything is sent), `WireError`; `Unavailable` after `timeout_s`: it may be
        stored or not then.
        """
        data, message_id = encode(message), f"{self._writer}.{next(self._numbers)}"
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            now = asyncio.get_running_loop().time()
            try:
                return await self._try(subjects.journal(partition), data, message_id, min(TRY_S, deadline - now))
            except Unavailable as error:
                now = asyncio.get_running_loop().time()
                if now + RETRY_S >= deadline or self._connection.closed.is_set():
                    raise
                log.debug("journal.append_again", partition=partition, error=str(error))
            await asyncio.sleep(RETRY_S)

    async def _try(self, subject: str, data: bytes, message_id: str, patience_s: float) -> int:
        # What waits in the client's buffer while there is no connection would be sent once for every try.
        try:
            async with asyncio.timeout(patience_s):
                await self._connection.wait_connected()
        except TimeoutError as error:
            raise Unavailable("no connection to the broker") from error
        return await self._publisher.publish(subject, data, message_id=message_id, timeout_s=patience_s)


@dataclass(frozen=True)
class JournalRecord:
    """One message of a journal. `message` is None where it could not be decoded.

    `stored_at` is Unix time by the broker's clock, in seconds.
    """

    sequence: int
    stored_at: float
    message: JournalMessage | None


class JournalReader:
    """Reads one partition's journal in order and without a gap, through whatever happens to broker and consumer.

    At most `limit` messages are in hand or on their way. Its consumer is made anew, from where reading stands,
    whenever there is a doubt about it; the broker removes one that was not used for `inactive_s`.
    """

    def __init__(
        self, connection: Connection, partition: int, *, limit: int = ROUND_LIMIT, inactive_s: float = INACTIVE_S
    ) -> None:
        self._connection = connection
        self._partition = partition
        self._stream = subjects.journal_stream(partition)
        self._inactive_s = inactive_s
        self._pull = PullLoop(connection, self._stream, self._attach, limit=limit)
        self._next = 0  # the lowest sequence that is still to come
        self._consumer = ""  # the newest one that we made
        self._doubted = ""
        self._order = _Order()

    @property
    def attached(self) -> bool:
        """Whether messages can arrive: for a stage's readiness."""
        return self._pull.attached

    async def start(self, from_sequence: int = 0) -> None:
        """Begins to read at `from_sequence` (0: at the first that is there). What goes wrong shows in `rounds`."""
        self._next = from_sequence
        self._pull.start()

    async def rounds(self) -> AsyncIterator[list[JournalRecord]]:
        """Everything that waits, in order; ends after `stop`. Nothing beyond the limit comes while one is worked on.

        Raises `ApiError` where there is no such journal. Trouble that may pass is waited for.
        """
        while messages := await self._pull.take():
            if records := self._records(messages):
                yield records
            self._pull.release(len(messages))

    async def stop(self) -> None:
        """Ends reading. What was not handed out stays in the journal."""
        await self._pull.cut()
        with contextlib.suppress(BrokerError):
            await self._remove_consumer()

    def _records(self, messages: list[Inbound]) -> list[JournalRecord]:
        records: list[JournalRecord] = []
        for message in messages:
            position = _position(message.reply)
            if not self._order.follows(position):
                self._doubt(position)
            elif position.sequence >= self._next:  # a consumer made anew repeats what an older one had delivered
                self._next = position.sequence + 1
                records.append(self._record(message, position))
        return records

    def _doubt(self, position: "_Position") -> None:
        """Something is missing before `position`: one new consumer reads from there, what this one sends is no use."""
        if self._doubted != position.consumer:
            self._doubted = position.consumer
            log.warning("journal.gap", partition=self._partition, wanted=self._next, got=position.sequence)
            self._pull.renew(f"gap before {position.sequence}")

    def _record(self, message: Inbound, position: "_Position") -> JournalRecord:
        content = None
        try:
            content = decode(JournalMessage, message.data)
        except WireError as error:
            log.warning("journal.undecodable", partition=self._partition, sequence=position.sequence, error=str(error))
        return JournalRecord(position.sequence, position.stored_at, content)

    async def _attach(self) -> str:
        """Makes a consumer that begins where reading stands, and lets go of the one before."""
        with contextlib.suppress(BrokerError):
            await self._remove_consumer()
        name = f"owner_{secrets.token_hex(8)}"
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": self._next} if self._next else {}
        config = {
            "name": name,
            "deliver_policy": "all",
            "ack_policy": "none",
            "inactive_threshold": round(self._inactive_s * 1e9),
            "mem_storage": True,
            "num_replicas": 1,
            **start,
        }
        body = {"stream_name": self._stream, "config": config, "action": "create"}
        await call(self._connection, f"CONSUMER.CREATE.{self._stream}.{name}", body)
        self._consumer = name
        return name

    async def _remove_consumer(self) -> None:
        name, self._consumer = self._consumer, ""
        if name and self._connection.connected:
            await call(self._connection, f"CONSUMER.DELETE.{self._stream}.{name}")


class _Position(NamedTuple):
    """Where a message stands. `number` counts, from 1, what its consumer has delivered."""

    consumer: str
    sequence: int
    number: int
    stored_at: float


class _Order:
    """Whether each consumer's messages come without one missing."""

    def __init__(self) -> None:
        self._consumer = ""
        self._number = 0

    def follows(self, position: _Position) -> bool:
        """Whether nothing is missing before this message; after a gap nothing of that consumer follows any more."""
        if position.consumer != self._consumer:
            self._consumer, self._number = position.consumer, 0
        if position.number != self._number + 1:
            return False
        self._number = position.number
        return True


def _position(reply: str) -> _Position:
    """Reads a delivery's ack subject, for its form see `broker.delivery`."""
    tokens = reply.split(".")
    first = 3 if len(tokens) == 9 else 5
    consumer, _, sequence, number, stored_at = tokens[first : first + 5]
    return _Position(consumer, int(sequence), int(number), int(stored_at) / 1e9)


async def purge(connection: Connection, partition: int, up_to_sequence: int) -> None:
    """Removes everything up to and with `up_to_sequence`, which the stream must have reached. Raises `BrokerError`."""
    if up_to_sequence > 0:
        query = {"seq": up_to_sequence + 1}
        await call(connection, f"STREAM.PURGE.{subjects.journal_stream(partition)}", query)


async def lag(connection: Connection, partition: int) -> int:
    """How many messages wait in the journal: appended, and not purged yet. Raises `BrokerError`."""
    info = await call(connection, f"STREAM.INFO.{subjects.journal_stream(partition)}")
    return int(info["state"]["messages"])
