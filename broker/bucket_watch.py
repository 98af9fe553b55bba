"""Watching a key-value bucket: what is there first, then every change, through restarts of the broker."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from broker.asking import again
from broker.connection import BrokerError, Connection, Inbound
from broker.ordered import OrderedReader

log = structlog.get_logger()

EXISTING_PATIENCE_S = 5.0
LEADER_PATIENCE_S = 20.0

OnValue = Callable[[str, bytes], Awaitable[None]]
"""Takes a key and its new value."""


class BucketWatch:
    """Calls `on_value` for every key of `bucket`, one at a time; keys that were deleted are passed over.

    An error in `on_value` is logged and costs no other call. Where the bucket itself is gone, the watch ends and logs
    it: the process' other readers fail then, too.
    """

    def __init__(self, connection: Connection, bucket: str, on_value: OnValue) -> None:
        self._prefix = f"$KV.{bucket}."
        self._bucket = bucket
        self._on_value = on_value
        self._reader = OrderedReader(
            connection, f"KV_{bucket}", filter_subject=f"{self._prefix}>", last_per_subject=True
        )
        self._to_come = 0
        self._complete = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns once `on_value` was called for everything that was there. Raises `Unavailable`, `ApiError`."""
        self._to_come = await again(self._reader.start, LEADER_PATIENCE_S)
        self._task = asyncio.create_task(self._read(), name=f"watch {self._bucket}")
        if not self._to_come:
            return
        try:
            async with asyncio.timeout(EXISTING_PATIENCE_S):
                await self._complete.wait()
        except TimeoutError:  # one of them was removed before it was sent
            log.warning("watch.fewer_than_announced", bucket=self._bucket, missing=self._to_come)

    async def close(self) -> None:
        """Ends the watch; a call that runs is cancelled."""
        await self._reader.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _read(self) -> None:
        try:
            async for messages in self._reader.rounds():
                for message in messages:
                    await self._hand_on(message)
                self._to_come -= len(messages)
                if self._to_come <= 0:
                    self._complete.set()
        except BrokerError as error:
            log.error("watch.ended", bucket=self._bucket, error=str(error))  # noqa: TRY400 - says all there is
        finally:
            self._complete.set()

    async def _hand_on(self, message: Inbound) -> None:
        if "KV-Operation" in message.headers:  # DEL or PURGE
            return
        try:
            await self._on_value(message.subject.removeprefix(self._prefix), message.data)
        except Exception:
            log.exception("watch.handler_failed", bucket=self._bucket)
