"""One answer on its way to the client: live results first, stored ones wherever something is missing."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import structlog

from broker import subjects
from broker.assembly import AnswerAssembly, Gap
from broker.chunk import Chunk
from broker.connection import Connection, Inbound, Unavailable
from broker.news import News
from broker.patience import Patience
from broker.replay import stored_results
from schemas.codec import CONTENT_TYPES, Encoding, WireError, decode, encoding_of
from schemas.faults import REFUSALS, RequestFault
from schemas.names import is_id
from schemas.result import Result

log = structlog.get_logger()

BACKLOG = 1024
"""Results that wait for a slow reader. What comes beyond is not kept: it is read from the stored ones later."""

AGAIN_S = 0.5

Take = Callable[[Chunk], bool]
"""Whether it has dealt with a chunk. It waits for nothing."""

ENCODINGS: dict[str, Encoding] = {"": "msgpack", **{name: encoding for encoding, name in CONTENT_TYPES.items()}}


@dataclass(frozen=True, slots=True)
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
    """Iterates over an answer's chunks until every choice has ended. Raises `RequestFault`.

    A live result finds its place when it arrives: whoever reads is woken once for all that came together. A chunk
    that comes while the reader waits is offered to `take` first, if that is set; one that it takes is not yielded.
    """

    __slots__ = (
        "_ahead",
        "_assembly",
        "_connection",
        "_fault",
        "_missed",
        "_news",
        "_over",
        "_patience",
        "_ready",
        "place",
        "take",
    )

    def __init__(
        self, connection: Connection, place: AnswerPlace, assembly: AnswerAssembly, patience: Patience
    ) -> None:
        self.place = place
        self.take: Take | None = None
        self._connection = connection
        self._assembly = assembly
        self._patience = patience
        self._ready: list[Chunk] = []  # a deque would take 700 bytes for each answer that waits
        self._ahead: list[Result] = []  # what leaves a gap before it
        self._missed = False
        self._news = News()
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

    def arrived(self, message: Inbound) -> None:
        """Takes a live result. Never waits."""
        if len(self._ready) + len(self._ahead) >= BACKLOG:
            self._missed = True
            return
        if self._fault is not None:
            return
        try:
            self._place(read_result(message))
        except RequestFault as fault:
            self._fault = fault
        except WireError as error:
            log.warning("client.unreadable_result", request_id=self.place.key, error=str(error))
        if self._ready or self._ahead or self._fault is not None:
            self._news.come()
        else:
            self._news.hear()

    def look_again(self) -> None:
        """Has the stored results read: live ones may have been missed."""
        self._missed = True
        self._news.come()

    def close(self) -> None:
        """Nobody reads it any more."""
        self._news.close()

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
            return self._ready.pop(0)
        if self._fault is None or self._over:
            raise StopAsyncIteration
        self._over = True
        raise self._fault

    async def _advance(self) -> None:
        """Waits for live results; reads the stored ones where some are missing, or none comes for too long."""
        if self._missed or self._ahead or not await self._news.wait(self._patience.look_every_s):
            await self._replay()

    def _place(self, result: Result) -> None:
        try:
            chunk = self._assembly.push(result)
        except Gap:
            self._ahead.append(result)
            return
        if chunk is not None:
            self._patience.heard()
            if not self._is_taken(chunk):
                self._ready.append(chunk)

    def _is_taken(self, chunk: Chunk) -> bool:
        if self.take is None or self._ready or chunk.finish or not self._news.expected:
            return False
        try:
            return self.take(chunk)
        except Exception:
            log.exception("client.take_failed", request_id=self.place.key)
            return False

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
        self._push_ahead()
        if not self._ready:
            await self._patience.silent(something=bool(stored))

    def _push_ahead(self) -> None:
        """What came live meanwhile. A gap that is still there is looked at again when more comes."""
        ahead, self._ahead = self._ahead, []
        for result in ahead:
            with contextlib.suppress(Gap):
                self._push(result)

    async def _stored(self) -> list[Result]:
        """Raises `Unavailable`, `TimeoutError`."""
        async with asyncio.timeout(self._patience.look_every_s):
            await self._connection.wait_connected()
        async with self._connection.replays:
            return await stored_results(self._connection, self.place.partition, self.place.subject)

    async def _blind(self) -> None:
        """Nothing can be read: a broker that comes back says more."""
        if self._connection.closed.is_set():
            raise RequestFault("unavailable", "the connection to the broker is closed")
        await self._patience.blind()
        await asyncio.sleep(AGAIN_S)
        self._missed = True


def read_result(message: Inbound) -> Result:
    """The result in a message. Raises `WireError`."""
    named = message.headers.get("Content-Type", "")
    return decode(Result, message.data, ENCODINGS.get(named) or encoding_of(named))


def check_start(request_id: str, from_token: int, from_text: int | None, choice: int | None) -> None:
    """Raises `RequestFault` for what names no place in an answer."""
    if not is_id(request_id):
        raise RequestFault("invalid_request", f"{request_id[:64]!r} is no request id", "id")
    for name, value in (("from_token", from_token), ("from_text", from_text or 0), ("choice", choice or 0)):
        if value < 0:
            raise RequestFault("invalid_request", "may not be negative", name)
