"""Cancelled requests: put into a bucket by whoever asked, watched by every stage."""

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import structlog

from broker import subjects
from broker.bucket_watch import BucketWatch
from broker.connection import Connection
from broker.publisher import Publisher
from schemas.codec import WireError, decode, encode, sniffed
from schemas.control import Cancel
from schemas.names import is_key

log = structlog.get_logger()

REMEMBERED = 100_000
PUT_PATIENCE_S = 10.0


async def put_cancel(connection: Connection, key: str, cancel: Cancel) -> None:
    """Cancels the request `key` (`<tenant>.<request id>`) wherever it is. Raises `Unavailable`, `NotSendable`.

    Tries for as long as a cluster may need for a new leader.
    """
    await Publisher(connection).publish_patiently(
        f"$KV.{subjects.CANCELLED_BUCKET}.{key}",
        encode(cancel),
        message_id=secrets.token_hex(8),
        patience_s=PUT_PATIENCE_S,
        wait_when_full=False,
    )


class Cancels:
    """The keys of requests that were cancelled lately: the newest 100,000 at the most."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._keys: OrderedDict[str, None] = OrderedDict()
        self._watch: BucketWatch | None = None

    async def start(self, on_cancel: Callable[[str, Cancel], Awaitable[None]]) -> None:
        """Calls `on_cancel` with key and cancel, for those that are there before it returns, then for new ones.

        An error in it is logged and costs no other call. Raises `Unavailable`, `ApiError`.
        """

        async def on_value(key: str, value: bytes) -> None:
            try:
                cancel = decode(Cancel, value, sniffed(value))
            except WireError as error:
                log.warning("cancel.unreadable", error=str(error))
                return
            if not is_key(key):
                log.warning("cancel.of_nothing", error=f"{key[:64]!r} is no <tenant>.<request id>")
                return
            self._remember(key)
            await on_cancel(key, cancel)

        self._watch = BucketWatch(self._connection, subjects.CANCELLED_BUCKET, on_value)
        await self._watch.start()

    def __contains__(self, key: object) -> bool:
        """Whether that request was cancelled."""
        return key in self._keys

    async def stop(self) -> None:
        """Ends the watch; what is known stays known."""
        if self._watch is not None:
            await self._watch.close()

    def _remember(self, key: str) -> None:
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > REMEMBERED:
            self._keys.popitem(last=False)
