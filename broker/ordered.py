"""Reading a stream in order and without a gap, whatever happens to the connection or the broker."""

import contextlib
import secrets
from collections.abc import AsyncIterator

import structlog

from broker.connection import BrokerError, Connection, Inbound
from broker.jetstream_api import API, Json, call
from broker.pull import PullLoop

log = structlog.get_logger()

INACTIVE_S = 60
"""After that long without a pull the server removes a consumer whose reader died."""


class OrderedReader:
    """Reads `stream`, or what `filter_subject` selects of it, from `from_sequence` (0: its first message) on.

    With `last_per_subject` it begins with the newest message of every subject that the filter selects. It reads
    through an ephemeral consumer of its own, which is made anew from the message after the last one whenever one is
    missing or the connection was lost. At most `limit` messages are on their way or waiting to be taken.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        *,
        filter_subject: str = "",
        from_sequence: int = 0,
        last_per_subject: bool = False,
        limit: int = 1024,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._filter = filter_subject
        self._last_per_subject = last_per_subject
        self._last = max(0, from_sequence - 1)
        self._consumer = ""
        self._expected = 1
        self._fresh = False
        self._pull = PullLoop(connection, stream, self._attach, limit=limit)

    @property
    def attached(self) -> bool:
        """Whether messages can arrive."""
        return self._pull.attached

    async def start(self) -> int:
        """Begins to read; the number of messages that wait already. Raises `Unavailable`, `ApiError` (no stream)."""
        waiting = await self._create()
        self._fresh = True
        self._pull.start()
        return waiting

    async def rounds(self) -> AsyncIterator[list[Inbound]]:
        """Everything that has come since the last round, in order; ends after `stop`. Raises `ApiError` (no stream)."""
        while messages := await self._pull.take():
            self._pull.release(len(messages))
            accepted = [message for message in messages if self._accept(message)]
            if accepted:
                yield accepted

    async def stop(self) -> None:
        """Ends reading and removes the consumer."""
        await self._pull.cut()
        await self._delete(self._consumer)

    def _accept(self, message: Inbound) -> bool:
        tokens = message.reply.split(".")
        first = 2 if len(tokens) == 9 else 4  # as in `delivery_of`
        if tokens[first + 1] != self._consumer:
            return False  # the consumer in its place sends it again
        if int(tokens[first + 4]) != self._expected:
            self._consumer_failed(f"gap before {tokens[first + 3]}")
            return False
        self._expected += 1
        sequence = int(tokens[first + 3])
        if sequence <= self._last:
            return False
        self._last = sequence
        return True

    def _consumer_failed(self, reason: str) -> None:
        if self._expected:
            log.info("ordered.renewed", stream=self._stream, reason=reason)
            self._expected = 0  # nothing more of this consumer is taken
            self._pull.renew(reason)

    async def _attach(self) -> str:
        if not self._fresh:
            await self._delete(self._consumer)
            await self._create()
        self._fresh = False
        return self._consumer

    async def _create(self) -> int:
        name = f"ordered_{secrets.token_hex(8)}"
        config: Json = {
            "name": name,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_S * 1_000_000_000,
            **self._beginning(),
        }
        endpoint = f"CONSUMER.CREATE.{self._stream}.{name}"
        if self._filter:
            config["filter_subject"] = self._filter
            endpoint += f".{self._filter}"
        answer = await call(self._connection, endpoint, {"stream_name": self._stream, "config": config})
        self._consumer, self._expected = name, 1
        return int(answer["num_pending"])

    def _beginning(self) -> Json:
        if self._last:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": self._last + 1}
        return {"deliver_policy": "last_per_subject" if self._last_per_subject else "all"}

    async def _delete(self, consumer: str) -> None:
        """Politely: the server would find it idle after a while."""
        if self._connection.connected:
            with contextlib.suppress(BrokerError):
                await self._connection.publish(f"{API}.CONSUMER.DELETE.{self._stream}.{consumer}", b"")
