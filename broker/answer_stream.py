"""One answer on its way to the client: live results first, stored ones wherever something is missing."""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import Self

import structlog

from broker import subjects
from broker.assembly import AnswerAssembly, Chunk, Gap
from broker.connection import Connection, Inbound, Unavailable
from broker.patience import Patience
from broker.replay import stored_results
from schemas.codec import WireError, decode, encoding_of
from schemas.faults import REFUSALS, RequestFault
from schemas.names import is_id
from schemas.result import Result

log = structlog.get_logger()

BACKLOG = 1024
"""Results that wait for a slow reader. What comes beyond is not kept: it is read from the stored ones later."""

AGAIN_S = 0.5


@dataclass(frozen=True)
class AnswerPlace:
    """Where the results of the request `key` are: in whatever session it began."""

    key: str
    partition: int
    subject: str

    @classmethod
    def of(cls, tenant: str, request_id: str, partitions: int) -> Self:
        key = f"{tenant}.{request_id}"
        partition = subjects.partition_of(key, partitions)
        return cls(key, partition, subjects.result(partition, tenant, "*", request_id))


class AnswerStream:
    """Iterates over an answer's chunks until every choice has ended. Raises `RequestFault`."""

    def __init__(
        self, connection: Connection, place: AnswerPlace, assembly: AnswerAssembly, patience: Patience
    ) -> None:
        self.place = place
        self._connection = connection
        self._assembly = assembly
        self._patience = patience
        self._arrived: asyncio.Queue[Inbound | None] = asyncio.Queue(BACKLOG)
        self._missed = False
        self._ready: deque[Chunk] = deque()
        self._fault: RequestFault | None = None
        self._over = False

    @property
    def ended(self) -> bool:
        """Whether nothing of this request runs any more; a fault of one choice says nothing of the others.

        But a refusal means all of them, and so does a cancel.
        """
        if self._fault is None or self._assembly.n == 1:
            return self._assembly.complete or self._fault is not None
        return self._assembly.complete or self._fault.code in REFUSALS or self._fault.code == "cancelled"

    async def arrived(self, message: Inbound | None) -> None:
        """Takes a live result. Never waits."""
        try:
            self._arrived.put_nowait(message)
        except asyncio.QueueFull:
            self._missed = True

    def look_again(self) -> None:
        """Has the stored results read: live ones may have been missed."""
        self._missed = True
        with contextlib.suppress(asyncio.QueueFull):
            self._arrived.put_nowait(None)

    def __aiter__(self) -> "AnswerStream":
        return self

    async def __anext__(self) -> Chunk:
        """What came before a fault comes before it here too."""
        while not self._ready and self._fault is None:
            if self.ended:
                raise StopAsyncIteration
            try:
                await self._advance()
            except RequestFault as fault:
                self._fault = fault
        if self._ready:
            return self._ready.popleft()
        if self._fault is None or self._over:
            raise StopAsyncIteration
        self._over = True
        raise self._fault

    async def _advance(self) -> None:
        """Takes in the next live result, or the stored ones where there is none, or one too many."""
        if self._missed and self._arrived.empty():
            await self._replay()
            return
        try:
            async with asyncio.timeout(self._patience.look_every_s):
                message = await self._arrived.get()
        except TimeoutError:
            await self._replay()
            return
        if message is None:  # look again
            return
        try:
            self._push(decode(Result, message.data, encoding_of(message.headers.get("Content-Type", ""))))
        except Gap:
            await self._replay()
        except WireError as error:
            log.warning("client.unreadable_result", request_id=self.place.key, error=str(error))

    def _push(self, result: Result) -> None:
        chunk = self._assembly.push(result)
        if chunk is not None:
            self._patience.heard()
            self._ready.append(chunk)

    async def _replay(self) -> None:
        self._missed = False
        try:
            stored = await self._stored()
        except (Unavailable, TimeoutError) as error:
            log.warning("client.replay_failed", request_id=self.place.key, error=str(error))
            await self._blind()
            return
        try:
            for result in stored:
                self._push(result)
        except Gap as error:
            raise RequestFault("lost_state", "a part of the answer is not stored any more") from error
        if not self._ready:
            await self._patience.silent(something=bool(stored))

    async def _stored(self) -> list[Result]:
        """Raises `Unavailable`, `TimeoutError`."""
        async with asyncio.timeout(self._patience.look_every_s):
            await self._connection.wait_connected()
        return await stored_results(self._connection, self.place.partition, self.place.subject)

    async def _blind(self) -> None:
        """Nothing can be read: a broker that comes back says more."""
        if self._connection.closed.is_set():
            raise RequestFault("unavailable", "the connection to the broker is closed")
        await self._patience.blind()
        await asyncio.sleep(AGAIN_S)
        self._missed = True


def check_start(request_id: str, from_token: int, from_text: int | None, choice: int | None) -> None:
    """Raises `RequestFault` for what names no place in an answer."""
    if not is_id(request_id):
        raise RequestFault("invalid_request", f"{request_id[:64]!r} is no request id", "id")
    for name, value in (("from_token", from_token), ("from_text", from_text or 0), ("choice", choice or 0)):
        if value < 0:
            raise RequestFault("invalid_request", "may not be negative", name)
