"""What lies in DEAD: messages that nobody could answer, read one at a time, and made requests again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from broker import subjects
from broker.connection import Connection
from broker.direct_get import StoredMessage
from broker.jetstream_api import MESSAGE_NOT_FOUND, ApiError, call
from broker.leader_get import at_leader, next_at_leader
from schemas.codec import WireError, decode, encoding_of
from schemas.control import DeadLetter
from schemas.faults import RequestFault
from schemas.names import is_id
from schemas.request import Envelope, Request
from schemas.ticket import StageTime, Ticket

_TICKET, _REQUEST = "ticket", "request"
_NO_SUCH_SEQUENCE = 10043

T = TypeVar("T")


@dataclass(frozen=True)
class StoredLetter:
    """A letter where it lies: its sequence in DEAD names it, `stored_at` is Unix time by the broker's clock."""

    sequence: int
    stored_at: float
    model: str
    letter: DeadLetter

    @property
    def key(self) -> str:
        """`<tenant>.<request id>`, from the letter or else from what it holds; "" where neither tells."""
        if self.letter.key:
            return self.letter.key
        try:
            kind, tenant, _ = _address(self.letter.subject)
            envelope = _decoded(Envelope if kind == _REQUEST else Ticket, self.letter)
        except WireError:
            return ""
        return envelope.key if isinstance(envelope, Ticket) else f"{tenant}.{envelope.id}"

    def named(self, name: str) -> bool:
        """Whether a person may mean it by `name`: the request's key, or its id."""
        return bool(self.key) and name in (self.key, self.key.partition(".")[2])

    def content(self) -> Request | Ticket:
        """What was to be answered. Raises `WireError` where it cannot be read, or was not kept whole."""
        kind, _, _ = _address(self.letter.subject)
        if not self.letter.payload:
            raise WireError("it was not kept with the letter")
        return _decoded(Request if kind == _REQUEST else Ticket, self.letter)


@dataclass(frozen=True)
class Retry:
    """A letter's content as a new request of `tenant`."""

    tenant: str
    request_id: str
    model: str
    subject: str
    message: Request | Ticket
    message_id: str


def retry_of(stored: StoredLetter, request_id: str, session: str, partitions: int) -> Retry:
    """The old id has its one terminal result, so it goes again as `request_id`, answered to `session`.

    A ticket is one choice, and becomes a request of one. Raises `RequestFault` where nothing can be sent again.
    """
    try:
        content = stored.content()
        _, tenant, model = _address(stored.letter.subject)
    except WireError as error:
        raise RequestFault("invalid_request", f"letter {stored.sequence} cannot be sent again: {error}") from error
    key = f"{tenant}.{request_id}"
    if isinstance(content, Request):
        message: Request | Ticket = msgspec.structs.replace(content, id=request_id, session=session)
        return Retry(tenant, request_id, model, stored.letter.subject, message, key)
    message = _renewed(content, request_id, session, subjects.partition_of(key, partitions))
    return Retry(tenant, request_id, model, stored.letter.subject, message, f"{key}.0")


def _renewed(ticket: Ticket, request_id: str, session: str, partition: int) -> Ticket:
    """Nothing of its first life counts: not when it came, and not its trace."""
    return msgspec.structs.replace(
        ticket,
        request=request_id,
        session=session,
        partition=partition,
        choice=0,
        choices=1,
        received_at=0.0,
        preprocess=StageTime(0.0, 0.0),
        trace="",
    )


class DeadLetters:
    """Reads DEAD at its leader, without a consumer: one letter may be megabytes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def each(self) -> AsyncIterator[StoredLetter]:
        """All of them, the oldest first. Raises `Unavailable`, `ApiError`."""
        start = 1
        while message := await next_at_leader(self._connection, subjects.DEAD, subjects.dead("*"), start):
            yield _stored(message)
            start = message.sequence + 1

    async def find(self, name: str) -> StoredLetter:
        """By its sequence, else by its request's key or id. Raises `RequestFault` for none, and for several."""
        if name.isdecimal() and 0 < int(name) < 2**63:
            message = await at_leader(self._connection, subjects.DEAD, int(name))
            if message is not None:
                return _stored(message)
        found = [each async for each in self.each() if each.named(name)]
        if not found:
            raise RequestFault("invalid_request", f"there is no letter of {name[:130]!r}")
        if len(found) > 1:
            numbers = ", ".join(str(each.sequence) for each in found)
            raise RequestFault("invalid_request", f"several letters are of {name}, name one by its number: {numbers}")
        return found[0]

    async def remove(self, sequence: int) -> None:
        """One that is gone already is no error. Raises `Unavailable`, `ApiError`."""
        try:
            await call(self._connection, f"STREAM.MSG.DELETE.{subjects.DEAD}", {"seq": sequence})
        except ApiError as error:
            if error.number not in (MESSAGE_NOT_FOUND, _NO_SUCH_SEQUENCE):
                raise


def _stored(message: StoredMessage) -> StoredLetter:
    model = message.subject.rpartition(".")[2]
    try:
        letter = decode(DeadLetter, message.data)
    except WireError as error:
        letter = DeadLetter(subject="", reason=f"the letter itself cannot be read: {error}", payload=message.data)
    return StoredLetter(message.sequence, message.stored_at, model, letter)


def _address(subject: str) -> tuple[str, str, str]:
    """Kind, tenant and model of the subject that a message came to. Raises `WireError` for any other."""
    parts = subject.split(".")
    if len(parts) == 4 and all(is_id(part) for part in parts):
        if parts[:2] == ["hr", _REQUEST]:
            return _REQUEST, parts[2], parts[3]
        if parts[:2] == ["hr", _TICKET]:
            return _TICKET, parts[3], parts[2]
    raise WireError(f"{subject[:200]!r} is no subject of a request or a ticket")


def _decoded(kind: type[T], letter: DeadLetter) -> T:
    try:
        return decode(kind, letter.payload, encoding_of(letter.content_type, letter.payload))
    except WireError as error:
        raise WireError(
            f"it is unreadable, as it came or because it was cut when it was set aside ({error})"
        ) from error
