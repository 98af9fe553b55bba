"""A NATS micro service: endpoints in a queue group, which tools find by `$SRV.PING`, `.INFO` and `.STATS`.

By the convention of ADR-32 (https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-32.md). The
client library's own `nats.micro` answers one request after the other, which leaves nothing to answer in batches.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import nats.errors
import structlog
from nats.aio.msg import Msg

from broker.connection import BrokerError, Connection, Inbound, NotSendable, TooLarge, Unavailable
from broker.inbox import take_back

log = structlog.get_logger()

ERROR_HEADER = "Nats-Service-Error"
ERROR_CODE_HEADER = "Nats-Service-Error-Code"
QUEUE_GROUP = "q"
"""The name that the convention gives to the queue group."""

MAX_DESCRIPTION = 256

_NO_HEADER_TEXT = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes back. `error_code` (an HTTP status) and `error` make it an error: a short name, not a user's text."""

    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    error_code: int = 0
    error: str = ""
    description: str = ""


Answer = Callable[[Inbound], Awaitable[Reply]]


@dataclass(eq=False)
class Endpoint:
    """One subject of the service, and what was done on it. `subscription` is the client library's."""

    name: str
    subject: str
    metadata: Mapping[str, str]
    subscription: Any = None
    requests: int = 0
    errors: int = 0
    last_error: str = ""
    busy_ns: int = 0

    def info(self) -> dict[str, Any]:
        """As `$SRV.INFO` tells it."""
        return {**self._address(), "metadata": dict(self.metadata)}

    def stats(self) -> dict[str, Any]:
        """As `$SRV.STATS` tells it; times in nanoseconds, from a request's arrival to its answer."""
        return {
            **self._address(),
            "num_requests": self.requests,
            "num_errors": self.errors,
            "last_error": self.last_error,
            "processing_time": self.busy_ns,
            "average_processing_time": self.busy_ns // max(self.requests, 1),
        }

    def count(self, reply: Reply, busy_ns: int) -> None:
        """One request more was answered."""
        self.requests += 1
        self.busy_ns += busy_ns
        if reply.error_code:
            self.errors += 1
            self.last_error = f"{reply.error_code}:{reply.error}"

    def _address(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "queue_group": QUEUE_GROUP}


class Service:
    """One instance of a service. Any number of requests are answered at once: who answers has to bound them."""

    def __init__(self, connection: Connection, *, name: str, identity: str, version: str, description: str) -> None:
        self._connection = connection
        self._name, self._identity = name, identity
        self._about: dict[str, Any] = {"name": name, "id": identity, "version": version, "metadata": {}}
        self._description = description
        self._started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        self._endpoints: dict[str, Endpoint] = {}
        self._control: list[Any] = []
        self._in_hand: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Answers what tools ask about it. Raises `Unavailable`."""
        name, identity = self._name, self._identity
        for verb, tell in (("PING", self._ping), ("INFO", self._info), ("STATS", self._stats)):
            for subject in (f"$SRV.{verb}", f"$SRV.{verb}.{name}", f"$SRV.{verb}.{name}.{identity}"):
                self._control.append(await self._subscribe(subject, "", self._telling(tell)))
        await self._connection.prove_subscriptions()

    async def serve(self, name: str, subject: str, answer: Answer, metadata: Mapping[str, str]) -> None:
        """Joins the queue group of `subject`, known to the server when it returns. Raises `Unavailable`.

        `name` is of [A-Za-z0-9_-]. Does nothing for a subject that is served already.
        """
        if subject in self._endpoints:
            return
        endpoint = self._endpoints[subject] = Endpoint(name, subject, metadata)

        async def on_message(message: Msg) -> None:
            asked = Inbound(message.subject, message.data, message.reply, dict(message.headers or {}))
            task = asyncio.create_task(self._handle(endpoint, answer, asked))
            self._in_hand.add(task)
            task.add_done_callback(self._in_hand.discard)

        try:
            endpoint.subscription = await self._subscribe(subject, QUEUE_GROUP, on_message)
        except BaseException:
            del self._endpoints[subject]
            raise
        await self._connection.prove_subscriptions()

    async def stop(self, grace_s: float) -> None:
        """Leaves the queue groups, answers what it has within that time, and is not to be found any more.

        What is not answered by then is told so.
        """
        leaving = [each.subscription for each in self._endpoints.values() if each.subscription is not None]
        await take_back(self._connection, [*leaving, *self._control])
        if self._in_hand:
            await asyncio.wait(self._in_hand, timeout=grace_s)
        late = list(self._in_hand)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _handle(self, endpoint: Endpoint, answer: Answer, asked: Inbound) -> None:
        arrived = time.perf_counter_ns()
        try:
            reply = await answer(asked)
        except asyncio.CancelledError:
            await self._send(asked.reply, Reply(b"", error_code=503, error="unavailable", description="stopping"))
            raise
        except Exception:
            log.exception("service.failed", subject=endpoint.subject)
            reply = Reply(b"", error_code=500, error="internal")
        reply = await self._send(asked.reply, reply)
        endpoint.count(reply, time.perf_counter_ns() - arrived)

    async def _send(self, to: str, reply: Reply) -> Reply:
        """Returns what was sent, or why it could not be."""
        try:
            if to:
                await self._connection.publish(to, reply.data, headers=_headers(reply))
        except TooLarge as error:
            return await self._send(to, Reply(b"", error_code=413, error="too_large", description=str(error)))
        except (Unavailable, NotSendable) as error:
            log.warning("service.unanswered", error=str(error))
            return Reply(b"", error_code=503, error="unavailable")
        return reply

    async def _subscribe(self, subject: str, queue: str, on_message: Callable[[Msg], Awaitable[None]]) -> Any:
        try:
            # No limit of the client library's: it would drop requests without a word.
            return await self._connection.client.subscribe(  # pyright: ignore[reportUnknownMemberType]
                subject, queue=queue, cb=on_message, pending_msgs_limit=-1, pending_bytes_limit=0
            )
        except nats.errors.Error as error:
            raise Unavailable(f"subscribing {subject}: {error!r}") from error

    def _telling(self, tell: Callable[[], dict[str, Any]]) -> Callable[[Msg], Awaitable[None]]:
        async def on_message(message: Msg) -> None:
            with contextlib.suppress(BrokerError):
                if message.reply:
                    await self._connection.publish(message.reply, json.dumps(tell()).encode())

        return on_message

    def _ping(self) -> dict[str, Any]:
        return {"type": "io.nats.micro.v1.ping_response", **self._about}

    def _info(self) -> dict[str, Any]:
        endpoints = [endpoint.info() for endpoint in self._endpoints.values()]
        about = {"description": self._description, "endpoints": endpoints}
        return {"type": "io.nats.micro.v1.info_response", **self._about, **about}

    def _stats(self) -> dict[str, Any]:
        endpoints = [endpoint.stats() for endpoint in self._endpoints.values()]
        about = {"started": self._started, "endpoints": endpoints}
        return {"type": "io.nats.micro.v1.stats_response", **self._about, **about}


def _headers(reply: Reply) -> dict[str, str]:
    """Header lines hold printable ASCII alone; what a user wrote may hold anything."""
    headers = dict(reply.headers)
    if reply.error_code:
        said = f"{reply.error}: {reply.description}" if reply.description else reply.error
        headers[ERROR_HEADER] = _NO_HEADER_TEXT.sub("?", said[:MAX_DESCRIPTION]).strip()
        headers[ERROR_CODE_HEADER] = str(reply.error_code)
    return headers
