"""Direct get: stored messages, read by one request without a consumer. Many come as many answers to one inbox.

In a cluster any replica answers, perhaps one that does not have the newest messages yet: where that matters, read at
the leader (`leader_get`).
"""

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.connection import Connection, Inbound, Unavailable

TIMEOUT_S = 5.0
BATCH_MESSAGES = 1000
BATCH_BYTES = 16 * 1024 * 1024

_NOT_FOUND = "404"
_END_OF_BATCH = "204"


@dataclass(frozen=True)
class StoredMessage:
    """A message as a stream holds it. `stored_at` is Unix time by the broker's clock, in seconds."""

    subject: str
    sequence: int
    stored_at: float
    data: bytes
    headers: dict[str, str]


async def last_of_subject(connection: Connection, stream: str, subject: str) -> StoredMessage | None:
    """The newest message under `subject` (no wildcards), None where there is none. Raises `Unavailable`."""
    answer = await connection.request(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", TIMEOUT_S)
    status = answer.headers.get("Status", "")
    if status == _NOT_FOUND:
        return None
    if status:
        raise Unavailable(f"direct get of {subject} from {stream}: {status}")
    return _stored(answer)


async def all_of_subject(connection: Connection, stream: str, subject: str) -> list[StoredMessage]:
    """Every message under `subject` (wildcards allowed), in the stream's order. Raises `Unavailable`."""
    messages: list[StoredMessage] = []
    start, pending = 1, 1
    while pending:
        query = {"batch": BATCH_MESSAGES, "max_bytes": BATCH_BYTES, "next_by_subj": subject, "seq": start}
        batch, pending = await _batch(connection, stream, query)
        messages += batch
        start = messages[-1].sequence + 1 if messages else 1
    return messages


async def last_of_each(connection: Connection, stream: str, subject: str) -> list[StoredMessage]:
    """The newest message of every subject that `subject` (wildcards) covers, up to 1,024, all as of one moment.

    Raises `Unavailable`.
    """
    messages, _ = await _batch(connection, stream, {"multi_last": [subject]})
    return messages


async def _batch(connection: Connection, stream: str, query: dict[str, Any]) -> tuple[list[StoredMessage], int]:
    """The messages that answer `query`, and how many more there are. Raises `Unavailable`."""
    answers: list[Inbound] = []
    ended: asyncio.Future[Inbound] = asyncio.get_running_loop().create_future()

    async def on_answer(answer: Inbound) -> None:
        if "Status" not in answer.headers:
            answers.append(answer)
        elif not ended.done():
            ended.set_result(answer)

    inbox = connection.new_inbox()
    # One connection keeps its order: the server knows the inbox before it reads the request.
    subscription = await connection.subscribe(inbox, on_answer)
    try:
        async with connection.while_connected(TIMEOUT_S):
            await connection.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(query).encode(), reply=inbox)
            end = await ended
    except TimeoutError as error:
        raise Unavailable(f"direct get from {stream}: no end after {len(answers)} messages") from error
    finally:
        await subscription.close()
    messages = [_stored(answer) for answer in answers]
    _check_whole(stream, messages, end)
    return messages, int(end.headers.get("Nats-Num-Pending", "0"))


def _check_whole(stream: str, messages: list[StoredMessage], end: Inbound) -> None:
    """Each message of a batch, and its end, names the sequence of the one before. Raises `Unavailable`."""
    status = end.headers["Status"]
    if status == _NOT_FOUND and not messages:
        return
    if status != _END_OF_BATCH:
        raise Unavailable(f"direct get from {stream}: {status} after {len(messages)} messages")
    named = [int(headers["Nats-Last-Sequence"]) for headers in (*(m.headers for m in messages), end.headers)]
    if named != [0, *(message.sequence for message in messages)]:
        raise Unavailable(f"direct get from {stream}: some of the {len(messages)} messages are missing")


def _stored(answer: Inbound) -> StoredMessage:
    return StoredMessage(
        subject=answer.headers["Nats-Subject"],
        sequence=int(answer.headers["Nats-Sequence"]),
        stored_at=unix_time(answer.headers["Nats-Time-Stamp"]),
        data=answer.data,
        headers=answer.headers,
    )


def unix_time(text: str) -> float:
    """Seconds since 1970, from a time as JetStream writes it."""
    return datetime.fromisoformat(text).timestamp()
