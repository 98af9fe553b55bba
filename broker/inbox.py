"""The inbox that pull requests answer to: taken down without losing what the server has sent already."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from broker.connection import BrokerError, Connection, Handler, Inbound, Unavailable

PATIENCE_S = 2.0


class Inbox:
    """A subscription of its own on `<subject>.*`."""

    def __init__(self, connection: Connection, subject: str, subscription: Any) -> None:
        self._connection = connection
        self.subject = subject
        self._subscription = subscription

    @classmethod
    async def open(cls, connection: Connection, handler: Handler) -> "Inbox":
        """Calls `handler` for all that comes; it must not raise. Raises `Unavailable`."""
        subject = connection.new_inbox()

        async def on_message(message: Msg) -> None:
            await handler(Inbound(message.subject, message.data, message.reply, message.headers or {}))

        try:
            # No limit of the client library's: it would drop messages, and what is asked for bounds them.
            subscription = await connection.client.subscribe(  # pyright: ignore[reportUnknownMemberType]
                f"{subject}.*", cb=on_message, pending_msgs_limit=-1, pending_bytes_limit=0
            )
        except nats.errors.Error as error:
            raise Unavailable(f"subscribing an inbox: {error!r}") from error
        return cls(connection, subject, subscription)

    async def retire(self) -> None:
        """Takes interest back and returns once the handler had everything that the server sent before that."""
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
