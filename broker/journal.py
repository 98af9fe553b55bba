"""A partition's journal: appended to by whoever works on its requests, read in order and purged by its owner alone."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from itertools import count

import msgspec
import structlog

from broker import subjects
from broker.connection import Connection, Inbound, Unavailable
from broker.delivery import Position
from broker.jetstream_api import call
from broker.ordered import INACTIVE_S, LIMIT, OrderedReader
from broker.publisher import Publisher
from schemas.codec import WireError, decode, encode
from schemas.journal import JournalMessage, Tokens
from schemas.names import is_key

log = structlog.get_logger()

TRY_S = 1.0
RETRY_S = 0.05
KEYS = 16_384
"""Keys of requests that a reader knows to be some: the same ones come again with every token."""


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
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            patience_s = min(TRY_S, deadline - loop.time())
            try:
                return await self._try(subjects.journal(partition), data, message_id, patience_s)
            except Unavailable as error:
                if loop.time() + RETRY_S >= deadline or self._connection.closed.is_set():
                    raise
                log.debug("journal.append_again", partition=partition, error=str(error))
            await asyncio.sleep(RETRY_S)

    async def _try(self, subject: str, data: bytes, message_id: str, patience_s: float) -> int:
        if not self._connection.connected:
            # What waits in the client's buffer while there is no connection would be sent once for every try.
            try:
                async with asyncio.timeout(patience_s):
                    await self._connection.wait_connected()
            except TimeoutError as error:
                raise Unavailable("no connection to the broker") from error
        return await self._publisher.publish(subject, data, message_id=message_id, timeout_s=patience_s)


class JournalRecord(msgspec.Struct, frozen=True):
    """One message of a journal. `message` is None where it could not be decoded.

    `stored_at` is Unix time by the broker's clock, in seconds. `pending` messages stood behind it when it was sent.
    """

    sequence: int
    stored_at: float
    message: JournalMessage | None
    pending: int = 0


class JournalReader:
    """Reads one partition's journal in order and without a gap, through whatever happens to broker and consumer.

    At most `limit` messages are in hand or on their way. The broker removes a consumer that was not used for
    `inactive_s`; reading goes on with another then.
    """

    def __init__(
        self, connection: Connection, partition: int, *, limit: int = LIMIT, inactive_s: float = INACTIVE_S
    ) -> None:
        self._partition = partition
        stream = subjects.journal_stream(partition)
        self._reader = OrderedReader(connection, stream, limit=limit, inactive_s=inactive_s)
        self._keys: set[str] = set()

    @property
    def attached(self) -> bool:
        """Whether messages can arrive: for a stage's readiness."""
        return self._reader.attached

    async def start(self, from_sequence: int = 0) -> None:
        """Begins to read at `from_sequence` (0: at the first that is there). What goes wrong shows in `rounds`."""
        self._reader.begin(from_sequence)

    async def rounds(self) -> AsyncIterator[list[JournalRecord]]:
        """Everything that waits, in order; ends after `stop`. Nothing beyond the limit comes while one is worked on.

        Raises `ApiError` where there is no such journal. Trouble that may pass is waited for.
        """
        async for placed in self._reader.placed_rounds():
            yield [self._record(place, message) for place, message in placed]

    async def stop(self) -> None:
        """Ends reading. What was not handed out stays in the journal."""
        await self._reader.stop()

    def _record(self, place: Position, message: Inbound) -> JournalRecord:
        try:
            content = decode(JournalMessage, message.data)
            self._check_keys(content.tokens)
        except WireError as error:
            log.warning("journal.undecodable", partition=self._partition, sequence=place.sequence, error=str(error))
            return JournalRecord(place.sequence, place.stored_at, None, place.pending)
        return JournalRecord(place.sequence, place.stored_at, content, place.pending)

    def _check_keys(self, entries: list[Tokens]) -> None:
        """Raises `WireError` for one that could not be used."""
        keys = self._keys
        for index, entry in enumerate(entries):
            if entry.key not in keys:
                if not is_key(entry.key):
                    raise WireError(f"{entry.key[:64]!r} is no key", f"tokens[{index}].key")
                if len(keys) >= KEYS:
                    keys.clear()
                keys.add(entry.key)


async def purge(connection: Connection, partition: int, up_to_sequence: int) -> None:
    """Removes everything up to and with `up_to_sequence`, which the stream must have reached. Raises `BrokerError`."""
    if up_to_sequence > 0:
        query = {"seq": up_to_sequence + 1}
        await call(connection, f"STREAM.PURGE.{subjects.journal_stream(partition)}", query)


async def lag(connection: Connection, partition: int) -> int:
    """How many messages wait in the journal: appended, and not purged yet. Raises `BrokerError`."""
    info = await call(connection, f"STREAM.INFO.{subjects.journal_stream(partition)}")
    return int(info["state"]["messages"])
