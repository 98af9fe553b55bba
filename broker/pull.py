"""Continuous pulling from one JetStream consumer: a message never waits for a round trip, and none is lost on stop."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from broker.connection import Connection, Inbound, Unavailable
from broker.inbox import PATIENCE_S, Inbox
from broker.jetstream_api import API

log = structlog.get_logger()

EXPIRES_S = 5.0
HEARTBEAT_S = 1.0
SILENT_HEARTBEATS = 3
BACK_OFF_S = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0)

Attach = Callable[[], Awaitable[str]]
"""Makes or verifies the consumer; returns its name. `Unavailable` is tried again, any other error ends the loop."""


class PullLoop:
    """Keeps pull requests open for as many messages as there is room for.

    Room is `limit` minus what was asked for, what has come and what was taken and not yet released: more than
    `limit` messages are never on their way or in hand. All pulls answer to one inbox. Whatever is odd about it (a
    reconnect, a deleted consumer, silence where heartbeats should be) has one remedy: retire the inbox in order,
    look at the consumer, pull again on a new one.
    """

    def __init__(self, connection: Connection, stream: str, attach: Attach, *, limit: int) -> None:
        self._connection = connection
        self._stream = stream
        self._attach = attach
        self._limit = limit
        self._inbox: Inbox | None = None
        self._next_subject = ""
        self._pulls = 0
        self._outstanding = 0
        self._taken = 0
        self._queue: list[Inbound] = []
        self._heard = 0.0
        self._failures = 0
        self._broken = ""
        self._over = False
        self._failure: BaseException | None = None
        self._arrived = asyncio.Event()
        self._wake = asyncio.Event()
        self._driver: asyncio.Task[None] | None = None

    @property
    def attached(self) -> bool:
        """Whether messages can arrive: connected, the consumer there, pulls open."""
        return self._inbox is not None and not self._broken and self._connection.connected

    @property
    def waiting(self) -> list[Inbound]:
        """What has come and was not taken yet."""
        return self._queue

    def start(self) -> None:
        """Begins to pull; trouble shows in `take`."""
        self._connection.on_reconnect.append(self._on_reconnect)
        self._driver = asyncio.create_task(self._run(), name=f"pull {self._stream}")
        self._driver.add_done_callback(self._on_driver_done)

    async def take(self) -> list[Inbound]:
        """Everything that has come, at least one message; nothing once the loop was stopped. Safe to cancel.

        Raises what ended the loop (`TopologyMismatch`, `ApiError`).
        """
        while not self._queue and not self._over:
            self._arrived.clear()
            await self._arrived.wait()
        if self._failure is not None:
            raise self._failure
        if self._over:
            return []
        batch, self._queue = self._queue, []
        self._taken += len(batch)
        return batch

    def release(self, count: int) -> None:
        """`count` of the messages taken are done with: there is room for as many more, asked for at once."""
        self._taken -= count
        if self._wanted():
            self._wake.set()

    def renew(self, reason: str) -> None:
        """Has the consumer looked at and pulled from anew: what came is not what should have come."""
        self._fail(reason)

    async def stop(self) -> list[Inbound]:
        """Ends pulling so that the server keeps what it has not sent; returns what has come and was not taken."""
        self._end()
        if self._driver is not None:
            # It retires the inbox by itself; where the broker is away there is nothing to wait for.
            await asyncio.wait([self._driver], timeout=PATIENCE_S if self._inbox else 0)
            await self._cancel_driver()
        left, self._queue = self._queue, []
        return left

    async def cut(self) -> None:
        """Ends pulling at once and forgets everything: what was on its way comes again after the ack wait."""
        self._end()
        await self._cancel_driver()
        self._queue = []

    def _end(self) -> None:
        self._over = True
        with contextlib.suppress(ValueError):
            self._connection.on_reconnect.remove(self._on_reconnect)
        self._arrived.set()
        self._wake.set()

    async def _cancel_driver(self) -> None:
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.wait([self._driver])
        if self._inbox is not None:
            await self._inbox.discard()
            self._inbox = None

    def _on_driver_done(self, driver: asyncio.Task[None]) -> None:
        if not driver.cancelled() and driver.exception() is not None:
            self._failure = driver.exception()
            self._end()

    async def _run(self) -> None:
        while not self._over:
            await self._pause(BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)])
            self._inbox = await self._open_inbox()
            if self._inbox is not None:
                await self._pull_until_broken(self._inbox)
                await self._inbox.retire()
                self._inbox = None
            self._broken = ""

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not (self._over or self._broken):
                    self._wake.clear()
                    await self._wake.wait()

    async def _open_inbox(self) -> Inbox | None:
        self._broken = ""
        try:
            await self._connection.wait_connected()
            consumer = await self._attach()
            self._next_subject = f"{API}.CONSUMER.MSG.NEXT.{self._stream}.{consumer}"
            self._outstanding = 0
            self._heard = asyncio.get_running_loop().time()
            return await Inbox.open(self._connection, self._on_message)
        except Unavailable as error:
            self._failures += 1
            log.debug("pull.waiting", stream=self._stream, reason=str(error))
            return None

    async def _pull_until_broken(self, inbox: Inbox) -> None:
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while not (self._broken or self._over):
            self._wake.clear()
            await self._ask(inbox)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._wake.wait()
            self._judge_silence(loop.time(), looked)
            looked = loop.time()
        log.debug("pull.detached", stream=self._stream, reason=self._broken or "stopped")

    def _wanted(self) -> int:
        """How many messages to ask for now: all that there is room for, once half of it is not asked for.

        So a freed slot is filled at once when nothing is on its way, and many small pulls become few.
        """
        free = self._limit - self._taken - len(self._queue)
        return free - self._outstanding if self._outstanding <= free // 2 else 0

    async def _ask(self, inbox: Inbox) -> None:
        count = self._wanted()
        if count <= 0 or not self._connection.connected:
            return
        self._pulls += 1
        self._outstanding += count
        body = f'{{"batch":{count},"expires":{EXPIRES_S * 1e9:.0f},"idle_heartbeat":{HEARTBEAT_S * 1e9:.0f}}}'
        try:
            await self._connection.publish(self._next_subject, body.encode(), reply=f"{inbox.subject}.{self._pulls}")
        except Unavailable as error:
            self._break(str(error))

    def _judge_silence(self, now: float, looked: float) -> None:
        if now - looked > 2 * HEARTBEAT_S:
            self._heard = now  # this process itself stood still: what came meanwhile is not read yet
        if self._outstanding and now - self._heard > SILENT_HEARTBEATS * HEARTBEAT_S:
            self._fail("no heartbeat")

    def _on_message(self, message: Inbound) -> None:
        self._heard = asyncio.get_running_loop().time()
        if not message.reply:  # every stored message has one, its ack subject
            self._on_status(message.headers)
            return
        self._failures = 0
        self._outstanding -= 1
        self._queue.append(message)
        self._arrived.set()

    def _on_status(self, headers: dict[str, str]) -> None:
        """Heartbeats, pulls that ended (with what they did not get), and everything that ends the inbox."""
        status = headers.get("Status", "")
        unanswered = headers.get("Nats-Pending-Messages")
        if status == "100":
            self._failures = 0
        elif status in ("404", "408") and unanswered is not None:
            self._failures = 0
            self._outstanding -= int(unanswered)
            self._wake.set()
        else:
            self._fail(f"{status} {headers.get('Description', '').strip()}".strip())

    def _on_reconnect(self) -> None:
        self._failures = 0
        self._break("reconnected")

    def _fail(self, reason: str) -> None:
        self._failures += 1
        self._break(reason)

    def _break(self, reason: str) -> None:
        self._broken = self._broken or reason
        self._wake.set()
