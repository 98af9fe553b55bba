"""One message handed out by a consumer: where it stands, and what can be said to it: done, not now, still at it."""

from typing import NamedTuple

import msgspec

from broker import subjects
from broker.connection import Connection, Inbound, Unavailable
from broker.direct_get import unix_time
from broker.jetstream_api import API
from broker.leader_get import READ_TIMEOUT_S, at_leader
from broker.publisher import CONTENT_TYPE, MESSAGE_ID, TRACE

ACK_TIMEOUT_S = 2.0


class Position(NamedTuple):
    """Where a message stands: `sequence` in its stream, `number` (from 1) among all that its consumer sent.

    `deliveries` counts from 1, `stored_at` is Unix time by the broker's clock, in seconds. `pending` messages wait
    behind it, for whoever pulls next.
    """

    consumer: str
    deliveries: int
    sequence: int
    number: int
    stored_at: float
    pending: int


def position_of(ack_subject: str) -> Position:
    """Reads what JetStream tells in the ack subject, the reply subject of everything that it delivers.

    `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<time>.<pending>`, where newer
    servers put `<domain>.<account>` before the stream and may add a token at the end.
    """
    tokens = ack_subject.split(".")
    first = 3 if len(tokens) == 9 else 5
    consumer, deliveries, sequence, number, stored_at, pending = tokens[first : first + 6]
    return Position(consumer, int(deliveries), int(sequence), int(number), int(stored_at) / 1e9, int(pending))


class Delivery(msgspec.Struct, frozen=True):
    """A message in hand. `sequence` is its own in the stream, `deliveries` counts from 1 and is no fencing token.

    `stored_at` is Unix time by the broker's clock, in seconds. `pending` messages waited behind it when it was sent.
    """

    data: bytes
    subject: str
    sequence: int
    deliveries: int
    stored_at: float
    ack_subject: str
    content_type: str = ""
    trace: str = ""
    message_id: str = ""
    pending: int = 0


def delivery_of(message: Inbound) -> Delivery:
    """The message with its place, and the headers that a stage asks for."""
    position = position_of(message.reply)
    return Delivery(
        data=message.data,
        subject=message.subject,
        sequence=position.sequence,
        deliveries=position.deliveries,
        stored_at=position.stored_at,
        ack_subject=message.reply,
        content_type=message.headers.get(CONTENT_TYPE, ""),
        trace=message.headers.get(TRACE, ""),
        message_id=message.headers.get(MESSAGE_ID, ""),
        pending=position.pending,
    )


async def ack(connection: Connection, ack_subject: str) -> None:
    """Removes the message from its work queue, without a word of it: see `acks`. Raises `Unavailable`."""
    await connection.publish(ack_subject, b"+ACK")


async def confirm_ack(connection: Connection, ack_subject: str, timeout_s: float = ACK_TIMEOUT_S) -> None:
    """Removes the message from its work queue and waits for the word of it. Also works after it was redelivered.

    Raises `Unavailable`: it may be removed or not; do it again.
    """
    await connection.request(ack_subject, b"+ACK", timeout_s)


async def nak(connection: Connection, ack_subject: str, delay_s: float = 0.0) -> None:
    """Hands the message to the next puller after `delay_s`. Raises `Unavailable`."""
    delay = b'-NAK {"delay":%d}' % round(delay_s * 1e9) if delay_s > 0 else b"-NAK"
    await connection.publish(ack_subject, delay)


async def keep_alive(connection: Connection, ack_subject: str) -> None:
    """Starts the message's ack wait again. No sign that one still holds it. Raises `Unavailable`."""
    await connection.publish(ack_subject, b"+WPI")


async def ticket_by_sequence(connection: Connection, sequence: int) -> tuple[bytes, float] | None:
    """The ticket stored under `sequence` and when (Unix s); None when it is gone. Raises `Unavailable`."""
    query = msgspec.json.encode({"seq": sequence})
    answer = await connection.request(f"{API}.DIRECT.GET.{subjects.TICKETS}", query, READ_TIMEOUT_S)
    status = answer.headers.get("Status", "")
    if not status:
        return answer.data, unix_time(answer.headers["Nats-Time-Stamp"])
    if status != "404":
        raise Unavailable(f"direct get from {subjects.TICKETS}: {status}")
    found = await at_leader(connection, subjects.TICKETS, sequence)  # a replica that lags does not have it yet
    return (found.data, found.stored_at) if found is not None else None
