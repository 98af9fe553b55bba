"""Publishing into a stream: acknowledged, with a message id, its size checked before anything is sent."""

import asyncio
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from broker.connection import BrokerError, Connection, NotPermitted, NotSendable, TooLarge, Unavailable
from broker.jetstream_api import ApiError, checked

log = structlog.get_logger()

MESSAGE_ID = "Nats-Msg-Id"
CONTENT_TYPE = "Content-Type"
TRACE = "traceparent"

FULL = (10077, 10047, 10023, 10028, 10002)
"""JetStream's errors for: a limit of the stream (messages, bytes, per subject), of memory or disk, of the account."""

TOO_LARGE = 10054
"""Larger than the stream's `max_msg_size`."""

IN_PROCESS = 10158
"""In a cluster: the last try with this message id is neither stored nor given up yet, it lacks a majority."""

FIRST_BACK_OFF_S = 0.02
LAST_BACK_OFF_S = 1.0

_SUBJECT = re.compile(r"^\$?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$")
_HEADER_VALUE = re.compile(r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")
_HEADER_OVERHEAD = len(b"NATS/1.0\r\n\r\n")


class Full(BrokerError):
    """The stream, or the subject's share of it, is at its limit. Trying again helps once something was taken out."""


@dataclass(frozen=True)
class Stored:
    """Where a message lies. `duplicate`: one with its message id was stored before, and this one was not."""

    sequence: int
    duplicate: bool = False


class Publisher:
    """Publishes into streams. Any number of publishes may run at once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        message_id: str = "",
        content_type: str = "",
        trace: str = "",
        timeout_s: float = 5.0,
    ) -> int:
        """Stores one message; its sequence in the stream (that of the first one, if it was stored before).

        With `message_id` it can be published again without harm. Raises `Full`, `TooLarge`, `NotSendable`,
        `Unavailable` (it may be stored or not), `ApiError`.
        """
        return (await self._store(subject, data, _headers(message_id, content_type, trace), timeout_s)).sequence

    async def _store(self, subject: str, data: bytes, headers: dict[str, str], timeout_s: float) -> Stored:
        self._check(subject, data, headers)
        answer = await self._connection.request(subject, data, timeout_s, headers or None)
        try:
            stored = checked(subject, answer.data)
            return Stored(int(stored["seq"]), bool(stored.get("duplicate")))
        except ApiError as error:
            raise _meaning(error) from error
        except KeyError as error:  # a plain subscriber answered: there is no stream behind this subject
            raise Unavailable(f"{subject}: what answered is no stream") from error

    async def publish_patiently(
        self,
        subject: str,
        data: bytes,
        *,
        message_id: str,
        content_type: str = "",
        trace: str = "",
        timeout_s: float = 5.0,
        patience_s: float = math.inf,
        wait_when_full: bool = True,
    ) -> Stored:
        """The same, again and again with growing pauses while the stream is full or away; the caller may cancel it.

        Raises `TooLarge`, `NotSendable`, `ApiError`; `Unavailable` and `Full` after `patience_s`, `Full` at once with
        `wait_when_full` off, `Unavailable` at once when the connection is closed for good; `NotPermitted` at once, but
        where the patience has no end.
        """
        headers = _headers(message_id, content_type, trace)
        deadline = asyncio.get_running_loop().time() + patience_s
        back_off_s = FIRST_BACK_OFF_S
        while True:
            left_s = deadline - asyncio.get_running_loop().time()
            try:
                await self._wait_connected(left_s)
                return await self._store(subject, data, headers, min(timeout_s, left_s))
            except (Full, Unavailable) as error:
                give_up = asyncio.get_running_loop().time() + back_off_s >= deadline
                give_up |= isinstance(error, NotPermitted) and patience_s < math.inf
                if (
                    give_up
                    or self._connection.closed.is_set()
                    or not (wait_when_full or isinstance(error, Unavailable))
                ):
                    raise
                log.debug("publish.waiting", subject=subject, reason=str(error), again_in_s=back_off_s)
            await asyncio.sleep(back_off_s)
            back_off_s = min(LAST_BACK_OFF_S, back_off_s * 2)

    async def _wait_connected(self, patience_s: float) -> None:
        """Else every try would wait in the client's buffer and be sent at the reconnect. Raises `Unavailable`."""
        try:
            async with asyncio.timeout(None if patience_s == math.inf else patience_s):
                await self._connection.wait_connected()
        except TimeoutError as error:
            raise Unavailable("no connection to the broker") from error

    def _check(self, subject: str, data: bytes, headers: dict[str, str]) -> None:
        """Refuses here what the server would answer by cutting the connection."""
        if not _SUBJECT.match(subject):
            raise NotSendable(f"{subject!r} is no subject to publish to")
        check_headers(headers)
        size = len(data) + headers_size(headers)
        if size > self._connection.client.max_payload:
            raise TooLarge(f"{size} bytes to {subject}, the broker takes {self._connection.client.max_payload}")


def check_headers(headers: Mapping[str, str]) -> None:
    """Raises `NotSendable` for what would break off a block of headers, or add one."""
    for name, value in headers.items():
        if not _HEADER_VALUE.match(value):
            raise NotSendable(f"header {name} of a message is not plain ASCII")


def headers_size(headers: dict[str, str]) -> int:
    """Bytes that headers take on the wire; the server counts them as payload."""
    if not headers:
        return 0
    return _HEADER_OVERHEAD + sum(len(name) + len(value) + 4 for name, value in headers.items())


def _headers(message_id: str, content_type: str, trace: str) -> dict[str, str]:
    named = {MESSAGE_ID: message_id, CONTENT_TYPE: content_type, TRACE: trace}
    return {name: value for name, value in named.items() if value}


def _meaning(error: ApiError) -> BrokerError:
    if error.number in FULL:
        return Full(str(error))
    if error.number == TOO_LARGE:
        return TooLarge(str(error))
    if error.code in (429, 503) or error.number == IN_PROCESS:
        return Unavailable(str(error))
    return error
