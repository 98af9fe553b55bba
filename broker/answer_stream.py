"""One answer on its way to the client: live results first, stored ones wherever something is missing."""

import asyncio
import contextlib

import structlog

from broker import subjects
from broker.assembly import AnswerAssembly, Chunk, Gap
from broker.connection import Connection, Inbound, Unavailable
from broker.replay import stored_results
from schemas.codec import WireError, decode, encoding_of
from schemas.faults import RequestFault
from schemas.request import Request
from schemas.result import Result

log = structlog.get_logger()

SILENCE_S = 5.0
"""After this long without a result the stored ones are looked at: a live message may have been lost."""

PATIENCE_AFTER_DEADLINE_S = 30.0

BACKLOG = 1024
"""Results that wait for a slow reader. What comes beyond is not kept: it is read from the stored ones later."""


class AnswerStream:
    """Iterates over an answer's chunks until every choice has ended. Raises `RequestFault`."""

    def __init__(self, connection: Connection, partitions: int, tenant: str, request: Request) -> None:
        self._connection = connection
        self._key = f"{tenant}.{request.id}"
        self._partition = subjects.partition_of(self._key, partitions)
        # In whatever session it began: an id that was used before has its answer there.
        self._subject = subjects.result(self._partition, tenant, "*", request.id)
        self._request = request
        self._assembly = AnswerAssembly(max(request.n, 1))  # a wrong n is answered on choice 0
        self._arrived: asyncio.Queue[Inbound | None] = asyncio.Queue(BACKLOG)
        self._give_up_at = asyncio.get_running_loop().time() + request.deadline_s + PATIENCE_AFTER_DEADLINE_S
        self._ready: list[Chunk] = []
        self._faulted = False

    @property
    def ended(self) -> bool:
        """Whether nothing of this request runs any more; a fault of one choice says nothing of the others."""
        return self._assembly.complete or (self._faulted and self._request.n == 1)

    def arrived(self, message: Inbound) -> None:
        """Takes a live result. Never waits."""
        with contextlib.suppress(asyncio.QueueFull):
            self._arrived.put_nowait(message)

    def look_again(self) -> None:
        """Has the stored results read: live ones may have been missed."""
        with contextlib.suppress(asyncio.QueueFull):
            self._arrived.put_nowait(None)

    def __aiter__(self) -> "AnswerStream":
        return self

    async def __anext__(self) -> Chunk:
        while not self._ready:
            if self._faulted or self.ended:
                raise StopAsyncIteration
            try:
                await self._advance()
            except RequestFault:
                self._faulted = True
                raise
        return self._ready.pop(0)

    async def _advance(self) -> None:
        """Takes in the next live result, or the stored ones where there is none, or one too many."""
        try:
            async with asyncio.timeout(SILENCE_S):
                message = await self._arrived.get()
        except TimeoutError:
            await self._replay()
            return
        try:
            if message is None:
                raise Gap
            self._push(decode(Result, message.data, encoding_of(message.headers.get("Content-Type", ""))))
        except Gap:
            await self._replay()
        except WireError as error:
            log.warning("client.unreadable_result", request_id=self._key, error=str(error))

    def _push(self, result: Result) -> None:
        chunk = self._assembly.push(result)
        if chunk is not None:
            self._ready.append(chunk)

    async def _replay(self) -> None:
        try:
            stored = await stored_results(self._connection, self._partition, self._subject)
        except Unavailable as error:
            log.warning("client.replay_failed", request_id=self._key, error=str(error))
            stored = []
        try:
            for result in stored:
                self._push(result)
        except Gap as error:
            raise RequestFault("lost_state", "a part of the answer is not stored any more") from error
        if not self._ready and asyncio.get_running_loop().time() > self._give_up_at:
            raise RequestFault("unavailable", "no answer long after the deadline")
