"""A grant to one worker: request and reply. Only what its reply lists was taken."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from broker.connection import BrokerError, Inbound, TooLarge
from broker.subjects import grant as grant_subject
from schemas.codec import WireError, decode, encode
from schemas.grant import Credits, Grant, GrantItem, GrantReply

ITEM_OVERHEAD = 4096
"""Bytes of a grant item beside its ids and hashes, generously."""

log = structlog.get_logger()


class Requests(Protocol):
    """`broker.connection.Connection`."""

    @property
    def max_payload(self) -> int: ...

    async def request(self, subject: str, data: bytes, timeout_s: float) -> Inbound: ...


@dataclass(frozen=True)
class Outcome:
    """Tickets (sequences) by what became of them; in none of the sets: refused. `room` is what the last reply says."""

    taken: frozenset[int]
    unanswered: frozenset[int]
    too_large: frozenset[int]
    room: Credits | None


class Granter:
    """Sends grants. One message a worker, unless it would be larger than the broker takes."""

    def __init__(self, connection: Requests, scheduler: str, timeout_s: float) -> None:
        self._connection = connection
        self._scheduler = scheduler
        self._timeout_s = timeout_s

    async def send(self, worker: str, items: Sequence[GrantItem]) -> Outcome:
        """Raises nothing: a grant that could not be delivered is an unanswered one."""
        parts = list(self._parts(items))
        if len(parts) == 1:
            replies = [await self._request(worker, parts[0])]
        else:
            replies = await asyncio.gather(*(self._request(worker, part) for part in parts))
        taken, unanswered, too_large = set[int](), set[int](), set[int]()
        room: Credits | None = None
        for part, reply in zip(parts, replies, strict=True):
            sequences = {item.sequence for item in part}
            if isinstance(reply, GrantReply):
                taken |= sequences & set(reply.taken)
                room = reply.credits
            elif isinstance(reply, TooLarge):
                too_large |= sequences
            else:
                unanswered |= sequences
        return Outcome(frozenset(taken), frozenset(unanswered), frozenset(too_large), room)

    async def _request(self, worker: str, items: list[GrantItem]) -> GrantReply | TooLarge | None:
        data = encode(Grant(self._scheduler, items))
        try:
            answer = await self._connection.request(grant_subject(worker), data, self._timeout_s)
            return decode(GrantReply, answer.data)
        except TooLarge as error:
            return error
        except (BrokerError, WireError) as error:
            log.warning("schedule.grant_unanswered", worker=worker, tickets=len(items), error=str(error))
            return None

    def _parts(self, items: Sequence[GrantItem]) -> Iterator[list[GrantItem]]:
        part: list[GrantItem] = []
        size = 0
        for item in items:
            item_size = len(item.ticket.prompt) + len(item.ticket.block_hashes) + len(item.ids) + ITEM_OVERHEAD
            if part and size + item_size > self._connection.max_payload:
                yield part
                part, size = [], 0
            part.append(item)
            size += item_size
        if part:
            yield part
