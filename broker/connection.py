"""One connection to NATS: how it is opened, proved, watched and closed. All other files of `broker/` build on it."""

# pyright: reportUnknownMemberType=false
# nats-py's own annotations leave type arguments open.

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Self

import msgspec
import nats
import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from broker.answers import Answers
from broker.direct_client import DirectClient
from broker.late_answers import awaiting
from broker.options import BrokerOptions, wrong_server
from broker.refusals import Refusals

log = structlog.get_logger()

MAX_SUBJECT = 1024
"""Characters. A protocol line of more than 4 KB makes the server end the connection, and the client stays closed."""

HEADER_RESERVE = 1024
"""Bytes of headers and protocol line that any message of ours stays below."""

PENDING_BYTES = 64 * 1024 * 1024

REPLAYS = 16
"""So many stored answers are read at once. After a reconnect thousands may be wanted: all at once, none is in time."""

NOBODY_THERE = "503"
"""The status with which the server answers a request that has no listener."""


class BrokerError(Exception):
    """The broker could not do what was asked; trying again later may help."""


class Unavailable(BrokerError):
    """No answer, or nobody there to answer."""


class NoResponders(Unavailable):
    """The broker said at once that nobody listens on that subject: nothing was done with the request."""


class NotPermitted(Unavailable):
    """The broker does not permit this user the question, or to hear answers. A reload of the broker may change it."""


class NotConnectable(BrokerError):
    """No connection can ever come of these options: a URL is none, or credentials are. Trying again does not help."""


class NotSendable(BrokerError):
    """No such subject can be, or a header is no plain ASCII. Trying again does not help."""


class TooLarge(BrokerError):
    """The message does not fit into the server's `max_payload`, headers included. Trying again does not help."""


class Inbound(msgspec.Struct, frozen=True):
    """A core NATS message as the stages see it. Its headers may be shared with others: nobody changes them."""

    subject: str
    data: bytes
    reply: str = ""
    headers: dict[str, str] = {}


Handler = Callable[[Inbound], Awaitable[None]]
Listener = Callable[[Inbound], None]


class Subscription:
    """A live core subscription; `close()` ends it at once."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def close(self) -> None:
        with contextlib.suppress(nats.errors.Error):
            await self._inner.unsubscribe()


class Connection:
    """An open connection.

    `closed` is set when it is gone for good: the process has to end then. `reconnects` counts how often it came back,
    `on_reconnect` are called each time. Who reads stored answers holds one of `replays` meanwhile. `refusals` are what
    this user was not permitted.
    """

    def __init__(self, client: DirectClient, options: BrokerOptions) -> None:
        self.options = options
        self.client = client
        self.jetstream: JetStreamContext = client.jetstream(timeout=5)
        self.closed = asyncio.Event()
        self.losses = 0  # before a task can see that there is a connection again; `reconnects` a moment after
        self.reconnects = 0
        self._trouble = ""
        self._lost_at: float | None = None  # while the loss is known and nothing has come back
        self._last_lost_at = 0.0
        self._closing = False
        self.on_reconnect: list[Callable[[], None]] = []
        self._waiting: set[asyncio.Timeout] = set()
        self.replays = asyncio.Semaphore(REPLAYS)
        self.refusals = Refusals()
        self._answers = Answers(self)

    @classmethod
    async def open(cls, options: BrokerOptions, patience_s: float = 60.0) -> Self:
        """Connects, waiting up to `patience_s` for the broker. Raises `Unavailable`; `NotConnectable`, at once."""
        if wrong := wrong_server(options.url):
            raise NotConnectable(f"cannot connect to {_without_users(options.url)!r}: {wrong[1]}")
        client = DirectClient()
        connection = cls(client, options)
        try:
            async with asyncio.timeout(patience_s):
                await connection._connect_until_there()
        except TimeoutError as error:
            why = f": {connection._trouble}" if connection._trouble else ""
            raise Unavailable(f"no broker at {options.shown_url} within {patience_s:.0f} s{why}") from error
        except nats.errors.Error as error:  # the client takes its options apart before it tries any server
            raise NotConnectable(f"cannot connect to {_without_users(options.url)!r}: {error}") from error
        return connection

    async def _connect_until_there(self) -> None:
        while True:
            try:
                await self.client.connect(
                    **self.options.connect_arguments(),
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_closed,
                    error_cb=self._on_error,
                )
                return
            except (OSError, nats.errors.NoServersError, nats.errors.TimeoutError) as error:
                log.debug("broker.waiting", url=self.options.shown_url, error=repr(error))
                await asyncio.sleep(0.1)

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    @property
    def lost_at(self) -> float:
        """When it was last lost (loop time). The client library knows that it is gone a moment before it says so."""
        if not self.connected and self._lost_at is None:
            return asyncio.get_running_loop().time()
        return self._last_lost_at if self._lost_at is None else self._lost_at

    @property
    def max_payload(self) -> int:
        """Bytes that a payload may have, room for headers already taken off."""
        return self.client.max_payload - HEADER_RESERVE

    async def publish(self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None) -> None:
        """Core publish: no answer, no promise. Raises `TooLarge`, `NotSendable`, `Unavailable`."""
        self.check_size(data)
        check_subject(subject)
        try:
            await self.client.publish(subject, data, reply=reply, headers=headers)
        except nats.errors.Error as error:
            raise Unavailable(f"publish to {subject}: {error!r}") from error

    async def request(
        self, subject: str, data: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Inbound:
        """Request/reply. Raises `Unavailable` where nobody answers in time (`NoResponders`, `NotPermitted`: at once);
        `TooLarge`, `NotSendable`.
        """
        self.check_size(data)
        check_subject(subject)
        try:
            answer = await self._answers.ask(subject, data, timeout_s, headers)
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable(f"request to {subject}: {error!r}") from error
        except PermissionError as error:
            raise NotPermitted(str(error)) from error
        if answer.headers and answer.headers.get("Status") == NOBODY_THERE:
            raise NoResponders(f"nobody listens on {subject}")
        return answer

    @contextlib.asynccontextmanager
    async def while_connected(self, timeout_s: float | None = None) -> AsyncGenerator[None, None]:
        """Awaits answers inside: raises `TimeoutError` after `timeout_s`, and at once when the connection is lost.

        An answer to a request that went out on a lost connection never comes.
        """
        async with awaiting(timeout_s) as scope:
            self._waiting.add(scope)
            try:
                yield
            finally:
                self._waiting.discard(scope)

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        """Calls `handler` for every message, one at a time, in order. An error in it costs no other message."""

        async def on_message(message: Msg) -> None:
            try:
                await handler(_inbound(message))
            except Exception:
                log.exception("broker.handler_failed", subject=message.subject)

        inner = await self.client.subscribe(
            subject, queue=queue, cb=on_message, pending_msgs_limit=-1, pending_bytes_limit=PENDING_BYTES
        )
        return Subscription(inner)

    async def listen(self, subject: str, listener: Listener, queue: str = "") -> Subscription:
        """As `subscribe`, for what need not wait: called while the connection is read, several times more cheaply.

        Nothing is ever dropped, and nothing else of the connection is read meanwhile.
        """

        def on_message(subject: str, data: bytes, reply: str, headers: dict[str, str]) -> None:
            try:
                listener(Inbound(subject, data, reply, headers))
            except Exception:
                log.exception("broker.handler_failed", subject=subject)

        return Subscription(await self.client.listen(subject, on_message, queue))

    async def prove_subscriptions(self) -> None:
        """Returns once the server knows every subscription made so far.

        A flush is no proof: the client's PING can overtake its SUB. A message to ourselves, subscribed last, is.
        """
        arrived = asyncio.Event()

        inbox = self.new_inbox()
        subscription = await self.listen(inbox, lambda _: arrived.set())
        try:
            async with asyncio.timeout(5):
                await self.publish(inbox, b"")
                await arrived.wait()
        except TimeoutError as error:
            raise Unavailable("the broker did not confirm the subscriptions") from error
        finally:
            await subscription.close()

    def new_inbox(self) -> str:
        return f"{self.options.inbox_prefix}.{secrets.token_hex(11)}"

    def check_size(self, data: bytes) -> None:
        """Raises `TooLarge`. nats-py checks the body alone, and the server then ends the connection for good."""
        if len(data) > self.max_payload:
            raise TooLarge(f"{len(data)} bytes, the broker takes {self.max_payload}")

    async def wait_connected(self) -> None:
        """Returns once there is a connection. Raises `Unavailable` when it is closed for good."""
        while not self.connected:
            if self.closed.is_set():
                raise Unavailable("the connection is closed")
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Flushes what is written and closes. `drain()` would wait for messages that nobody will read."""
        self._closing = True
        with contextlib.suppress(nats.errors.Error, asyncio.TimeoutError, OSError):
            await self.client.flush(timeout=2)
        with contextlib.suppress(nats.errors.Error, OSError, RuntimeError):  # uvloop's, where it has just been lost
            await self.client.close()

    async def _on_disconnected(self) -> None:
        self._lost_at = self._last_lost_at = asyncio.get_running_loop().time()
        self.losses += 1
        self.refusals.forget()
        if not self._closing:
            log.warning("broker.disconnected", url=self.options.shown_url)
        self._answers.lose()
        waiting, self._waiting = self._waiting, set()
        for scope in waiting:
            if not scope.expired():
                scope.reschedule(self._last_lost_at)

    async def _on_reconnected(self) -> None:
        self.reconnects += 1
        self._lost_at = None
        log.warning("broker.reconnected", url=self.options.shown_url)
        for callback in self.on_reconnect:
            callback()

    async def _on_closed(self) -> None:
        self.closed.set()

    async def _on_error(self, error: Exception) -> None:
        if not isinstance(error, OSError) or not self._trouble:  # what the server says outlasts what the network does
            self._trouble = str(error) or repr(error)
        if refusal := self.refusals.note(str(error)):
            self._answers.refuse(refusal)
        if not isinstance(error, (ConnectionError, OSError)):
            log.warning("broker.error", error=repr(error))


def check_subject(subject: str) -> None:
    """Raises `NotSendable` for what no server takes as a subject."""
    if len(subject) > MAX_SUBJECT or subject.split() != [subject] or ".." in f".{subject}.":
        raise NotSendable(f"{subject[:64]!r} is no subject ({len(subject)} characters)")


def _without_users(text: str) -> str:
    """What is no URL has no parts to tell apart: all before its last @ may be a secret."""
    _, at, rest = text.rpartition("@")
    return f"***@{rest}" if at else text


def _inbound(message: Msg) -> Inbound:
    return Inbound(message.subject, message.data, message.reply, dict(message.headers or {}))
