"""What edges keep of requests, so that any of them can answer for it: a key-value bucket, `<tenant>.<request id>`."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable

from broker import subjects
from broker.asking import again
from broker.connection import BrokerError, Connection, TooLarge, Unavailable
from broker.direct_get import StoredMessage, last_of_subject
from broker.jetstream_api import ApiError, checked
from broker.leader_get import newest_at_leader
from broker.publisher import FULL, IN_PROCESS, TOO_LARGE
from schemas.codec import WireError, decode, encode
from schemas.faults import RequestFault
from schemas.kept_request import KeptRequest

PATIENCE_S = 10.0
"""A cluster may need that long for a new leader."""

PUT_TIMEOUT_S = 5.0

PACK_ABOVE = 4096
"""Bytes above which a record is packed: conversations are text, which shrinks to a third or less."""

UNPACKED_MAX = 64 * 1024 * 1024

_STREAM = f"KV_{subjects.RESPONSES_BUCKET}"
_NOT_THE_LAST = (10071, 10164)
_OPERATION = "KV-Operation"
_TOO_LARGE = "what has to be kept of this request is larger than may be; of a response with store: false nothing is"
_PACKED = {"Content-Encoding": "deflate"}

GivesWay = Callable[[KeptRequest], Awaitable[bool]]
"""Whether what is kept may be replaced."""


class KeptRequests:
    """Those of one tenant. Everything here raises `RequestFault` where the broker does not do its part."""

    def __init__(self, connection: Connection, tenant: str) -> None:
        self._connection = connection
        self._prefix = f"$KV.{subjects.RESPONSES_BUCKET}.{tenant}."

    async def put_first(
        self, request_id: str, kept: KeptRequest, gives_way: GivesWay | None = None
    ) -> KeptRequest | None:
        """Keeps it, unless something is kept under this id, by whatever edge, and does not give way: that is returned.

        An answer of the broker that was lost may make that one's own. Raises `RequestFault` (`too_large`, `busy`, …).
        """
        sequence = 0
        while True:
            try:
                await self._put(request_id, kept, sequence)
            except ApiError as error:
                if error.number not in _NOT_THE_LAST:
                    raise _fault(error) from error
            except (BrokerError, WireError) as error:
                raise _fault(error) from error
            else:
                return None
            there = await self._newest(request_id)
            if there is not None and not _is_removal(there):
                first = _decoded(there)
                if gives_way is None or not await gives_way(first):
                    return first
            sequence = there.sequence if there is not None else 0

    async def get(self, request_id: str) -> KeptRequest | None:
        """What is kept, None where nothing is."""
        subject = self._prefix + request_id
        try:
            stored = await again(lambda: last_of_subject(self._connection, _STREAM, subject), PATIENCE_S)
        except BrokerError as error:
            raise _fault(error) from error
        if stored is None:  # this replica may not have it yet
            stored = await self._newest(request_id)
        return None if stored is None or _is_removal(stored) else _decoded(stored)

    async def remove(self, request_id: str) -> None:
        """Nothing is kept under this id any more."""
        try:
            await self._publish(request_id, b"", {_OPERATION: "PURGE", "Nats-Rollup": "sub"})
        except BrokerError as error:
            raise _fault(error) from error

    async def _put(self, request_id: str, kept: KeptRequest, last_sequence: int) -> None:
        """Behind the message of that sequence alone (0: none)."""
        data, headers = encode(kept), {"Nats-Expected-Last-Subject-Sequence": str(last_sequence)}
        if len(data) > PACK_ABOVE:
            data, headers = await asyncio.to_thread(zlib.compress, data, 1), {**headers, **_PACKED}
        await self._publish(request_id, data, headers)

    async def _newest(self, request_id: str) -> StoredMessage | None:
        subject = self._prefix + request_id
        try:
            return await again(lambda: newest_at_leader(self._connection, _STREAM, subject), PATIENCE_S)
        except BrokerError as error:
            raise _fault(error) from error

    async def _publish(self, request_id: str, data: bytes, headers: dict[str, str]) -> None:
        subject = self._prefix + request_id

        async def publish() -> None:
            answer = await self._connection.request(subject, data, PUT_TIMEOUT_S, headers)
            try:
                checked(subject, answer.data)
            except ApiError as error:
                if error.code == 503 or error.number == IN_PROCESS:  # a cluster elects a leader
                    raise Unavailable(str(error)) from error
                raise

        await again(publish, PATIENCE_S)


def _is_removal(stored: StoredMessage) -> bool:
    return _OPERATION in stored.headers


def _decoded(stored: StoredMessage) -> KeptRequest:
    try:
        return decode(KeptRequest, _unpacked(stored))
    except (WireError, zlib.error) as error:
        raise RequestFault("lost_state", f"what is kept of the request cannot be read: {error}") from error


def _unpacked(stored: StoredMessage) -> bytes:
    """Raises `zlib.error`."""
    packed = stored.headers.items() >= _PACKED.items()
    return zlib.decompressobj().decompress(stored.data, UNPACKED_MAX) if packed else stored.data


def _fault(error: BrokerError | WireError) -> RequestFault:
    number = error.number if isinstance(error, ApiError) else 0
    if isinstance(error, TooLarge) or number == TOO_LARGE:
        return RequestFault("too_large", _TOO_LARGE)
    if number in FULL:
        return RequestFault("busy", "no room to keep what this request asks for")
    if isinstance(error, WireError):
        return RequestFault("invalid_request", error.reason, error.field)
    return RequestFault("unavailable", str(error))
