"""The inbox that pull requests answer to: taken down without losing what the server has sent already."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import nats.errors
import structlog

from broker.connection import BrokerError, Connection, Inbound, Listener, Unavailable

log = structlog.get_logger()

PATIENCE_S = 2.0


class Inbox:
    """A subscription of its own on `<subject>.*`."""

    def __init__(self, connection: Connection, subject: str, subscription: Any) -> None:
        self._connection = connection
        self.subject = subject
        self._subscription = subscription

    @classmethod
    async def open(cls, connection: Connection, listener: Listener) -> "Inbox":
        """Calls `listener` for all that comes. Raises `Unavailable`."""
        inbox = connection.new_inbox()

        def on_message(subject: str, data: bytes, reply: str, headers: dict[str, str]) -> None:
            try:
                listener(Inbound(subject, data, reply, headers))
            except Exception:
                log.exception("broker.listener_failed", subject=subject)

        try:
            subscription = await connection.client.listen(f"{inbox}.*", on_message)
        except nats.errors.Error as error:
            raise Unavailable(f"subscribing an inbox: {error!r}") from error
        return cls(connection, inbox, subscription)

    async def retire(self) -> None:
        """Takes interest back and returns once the listener had everything that the server sent before that."""
        await take_back(self._connection, [self._subscription])

    async def discard(self) -> None:
        """Ends it at once; what is on its way is thrown away."""
        with contextlib.suppress(nats.errors.Error):
            await self._subscription.unsubscribe()


async def take_back(connection: Connection, subscriptions: Sequence[Any]) -> None:
    """Ends subscriptions of the client library once their handlers had everything that the server sent to them."""
    with contextlib.suppress(nats.errors.Error, BrokerError, TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            if connection.connected:
                # The library's own unsubscribe throws away what is on its way, its drain lets PING overtake UNSUB.
                for each in subscriptions:
                    await connection.client._send_unsubscribe(each._id)  # noqa: SLF001
                await connection.prove_subscriptions()
            while any(each.pending_msgs for each in subscriptions):  # noqa: ASYNC110 - the library has no event for it
                await asyncio.sleep(0)
    for each in subscriptions:
        with contextlib.suppress(nats.errors.Error):
            await each.unsubscribe()
