"""Reading a stream in order and without a gap, whatever happens to the connection or the broker."""

import contextlib
import secrets
from collections.abc import AsyncIterator

import structlog

from broker.connection import BrokerError, Connection, Inbound
from broker.delivery import Position, position_of
from broker.jetstream_api import Json, call
from broker.pull import PullLoop

log = structlog.get_logger()

LIMIT = 1000
INACTIVE_S = 30.0
CREATE_PATIENCE_S = 3.0
DELETE_PATIENCE_S = 1.0


class OrderedReader:
    """Reads `stream`, or what `filter_subject` selects of it, each message once.

    With `last_per_subject` it begins with the newest message of every subject that the filter selects. It reads
    through an ephemeral consumer of its own, which is made anew from the message after the last one whenever one is
    missing or the connection was lost; the broker removes one that was not used for `inactive_s` (its reader died).
    At most `limit` messages are in hand, waiting or on their way.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        *,
        filter_subject: str = "",
        last_per_subject: bool = False,
        limit: int = LIMIT,
        inactive_s: float = INACTIVE_S,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._filter = filter_subject
        self._last_per_subject = last_per_subject
        self._inactive_s = inactive_s
        self._last = 0
        self._consumer = ""  # the newest one: nothing of another is taken
        self._expected = 1  # the number of its next message; 0 once one is missing
        self._fresh = False
        self._pull = PullLoop(connection, stream, self._attach, limit=limit)

    @property
    def attached(self) -> bool:
        """Whether messages can arrive."""
        return self._pull.attached

    def begin(self, from_sequence: int = 0) -> None:
        """Begins to read at `from_sequence` (0: at the first that is there). What goes wrong shows in `rounds`."""
        self._last = max(0, from_sequence - 1)
        self._pull.start()

    async def start(self) -> int:
        """As `begin`; the number of messages that wait already. Raises `Unavailable`, `ApiError` (no stream)."""
        waiting = await self._create()
        self._fresh = True
        self.begin()
        return waiting

    async def rounds(self) -> AsyncIterator[list[Inbound]]:
        """Everything that waits, in order; ends after `stop`. Nothing beyond the limit comes while one is worked on.

        Raises `ApiError` where there is no such stream. Trouble that may pass is waited for.
        """
        async for placed in self.placed_rounds():
            yield [message for _, message in placed]

    async def placed_rounds(self) -> AsyncIterator[list[tuple[Position, Inbound]]]:
        """As `rounds`, each message with its place."""
        while messages := await self._pull.take():
            placed = [(place, message) for message in messages if (place := self._accept(message)) is not None]
            if placed:
                yield placed
            self._pull.release(len(messages))

    async def stop(self) -> None:
        """Ends reading and removes the consumer. What was not handed out stays in the stream."""
        await self._pull.cut()
        await self._delete()

    def _accept(self, message: Inbound) -> Position | None:
        """Its place; None where it is not the next one."""
        position = position_of(message.reply)
        if position.consumer != self._consumer or not self._expected:
            return None  # the consumer in its place sends it again
        if position.number != self._expected:
            log.warning("ordered.gap", stream=self._stream, after=self._last, got=position.sequence)
            self._expected = 0
            self._pull.renew(f"gap before {position.sequence}")
            return None
        self._expected += 1
        if position.sequence <= self._last:
            return None
        self._last = position.sequence
        return position

    async def _attach(self) -> str:
        if not self._fresh:
            await self._delete()
            await self._create()
        self._fresh = False
        return self._consumer

    async def _create(self) -> int:
        """Makes a consumer that begins where reading stands; how many messages wait for it."""
        # Known before it is there: reading stands still meanwhile, and one whose creation nobody confirmed is removed.
        name = self._consumer = f"ordered_{secrets.token_hex(8)}"
        self._expected = 1
        config: Json = {
            "name": name,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": round(self._inactive_s * 1e9),
            **self._beginning(),
        }
        endpoint = f"CONSUMER.CREATE.{self._stream}.{name}"
        if self._filter:
            config["filter_subject"] = self._filter
            endpoint += f".{self._filter}"
        body = {"stream_name": self._stream, "config": config}
        answer = await call(self._connection, endpoint, body, CREATE_PATIENCE_S)
        return int(answer["num_pending"])

    def _beginning(self) -> Json:
        if self._last:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": self._last + 1}
        return {"deliver_policy": "last_per_subject" if self._last_per_subject else "all"}

    async def _delete(self) -> None:
        """Politely: the server would find it idle after a while."""
        if self._consumer and self._connection.connected:
            with contextlib.suppress(BrokerError):
                endpoint = f"CONSUMER.DELETE.{self._stream}.{self._consumer}"
                await call(self._connection, endpoint, timeout_s=DELETE_PATIENCE_S)
