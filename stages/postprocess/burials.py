"""Poisonous requests to DEAD, beside the reading of the journal; their tickets are acknowledged behind that."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from broker import subjects
from broker.connection import BrokerError, Connection, TooLarge, Unavailable
from broker.publisher import Publisher
from broker.work_queue import ticket_by_sequence
from schemas.codec import CONTENT_TYPES, decode, encode
from schemas.control import DeadLetter
from schemas.ticket import Ticket
from stages.postprocess.acks import TicketAcks
from stages.postprocess.letters import Letter
from stages.postprocess.spec import ChoiceKey

RETRY_S = 0.5

log = structlog.get_logger()


class Burials:
    """Each tries until its letter is stored.

    One that is lost with this process is made up for: nobody keeps its ticket alive, so that comes again, and its
    owner finds a request that has ended as poison, and buries it. `on_buried` is told of each that is stored.
    """

    def __init__(self, connection: Connection, acks: TicketAcks, on_buried: Callable[[], None]) -> None:
        self._connection = connection
        self._on_buried = on_buried
        self._publisher = Publisher(connection)
        self._acks = acks
        self._running: dict[ChoiceKey, asyncio.Task[None]] = {}

    def submit(self, letter: Letter, ack: str) -> None:
        """Stores the letter, then acknowledges the ticket behind `ack`. Its terminal result is stored."""
        if letter.key in self._running:
            return  # the same ticket, delivered again meanwhile: its first acknowledgement holds
        task = asyncio.create_task(self._bury(letter, ack), name=f"burial {letter.message_id}")
        self._running[letter.key] = task
        task.add_done_callback(lambda _: self._running.pop(letter.key, None))

    async def finish(self, timeout_s: float) -> None:
        """Waits for those that run, and ends what takes longer."""
        if not self._running:
            return
        _, late = await asyncio.wait(list(self._running.values()), timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _bury(self, letter: Letter, ack: str) -> None:
        try:
            payload = await self._ticket(letter.sequence)
            if payload is not None:  # else somebody has acknowledged it: the letter was stored before
                await self._store(letter, payload)
                self._on_buried()
                log.error("postprocess.poison", request_id=letter.key[0], choice=letter.key[1], reason=letter.reason)
        except BrokerError as error:
            # The ticket comes again after its ack wait, and this with it.
            log.error("postprocess.not_buried", request_id=letter.key[0], error=str(error))  # noqa: TRY400
            return
        except Exception:
            log.exception("postprocess.burial_failed", request_id=letter.key[0])
            return
        self._acks.submit(ack)

    async def _ticket(self, sequence: int) -> bytes | None:
        while True:
            try:
                stored = await ticket_by_sequence(self._connection, sequence)
            except Unavailable as error:
                log.debug("postprocess.burial_waits", error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return stored[0] if stored is not None else None

    async def _store(self, letter: Letter, payload: bytes) -> None:
        ticket = decode(Ticket, payload)
        dead = DeadLetter(
            subject=subjects.ticket(ticket.model, ticket.tenant),
            reason=letter.reason,
            payload=payload,
            content_type=CONTENT_TYPES["msgpack"],
            key=letter.key[0],
            choice=letter.key[1],
            attempts=list(letter.attempts),
        )
        try:
            await self._send(ticket.model, dead, letter.message_id)
        except TooLarge:  # the largest tickets leave no room for what is said of them
            bare = msgspec.structs.replace(dead, payload=b"", reason=f"{dead.reason} (its ticket is too large to keep)")
            await self._send(ticket.model, bare, letter.message_id)

    async def _send(self, model: str, letter: DeadLetter, message_id: str) -> None:
        await self._publisher.publish_patiently(subjects.dead(model), encode(letter), message_id=message_id)
