"""Reading at a stream's leader: nothing that was acknowledged is missing there.

A direct get is answered by any replica, and in a healthy cluster at rest some 5 % of those sent right after an
acknowledged publish do not know of it yet: a follower learns with the next message what the leader has committed.
"""

import base64

from broker.connection import Connection
from broker.direct_get import StoredMessage, all_of_subject, unix_time
from broker.jetstream_api import MESSAGE_NOT_FOUND, ApiError, Json, call

READ_TIMEOUT_S = 2.0
"""Without a leader nobody answers: asking again is how its successor is found."""


async def newest_at_leader(connection: Connection, stream: str, subject: str) -> StoredMessage | None:
    """The newest message under `subject` (wildcards allowed), None where there is none. Raises `Unavailable`."""
    return await _get(connection, stream, {"last_by_subj": subject})


async def at_leader(connection: Connection, stream: str, sequence: int) -> StoredMessage | None:
    """The message stored under `sequence`, None where it is gone. Raises `Unavailable`."""
    return await _get(connection, stream, {"seq": sequence})


async def next_at_leader(connection: Connection, stream: str, subject: str, start: int) -> StoredMessage | None:
    """The first message from the sequence `start` on under `subject` (wildcards allowed). Raises `Unavailable`."""
    return await _get(connection, stream, {"next_by_subj": subject, "seq": start})


async def whole_history(connection: Connection, stream: str, subject: str) -> list[StoredMessage]:
    """Every message under `subject` (wildcards allowed), in the stream's order. Raises `Unavailable`.

    Any replica gives the bulk of it; what that one does not have yet, its leader adds.
    """
    messages = await all_of_subject(connection, stream, subject)
    while True:
        after = messages[-1].sequence + 1 if messages else 1
        missed = await next_at_leader(connection, stream, subject, after)
        if missed is None:
            return messages
        messages.append(missed)


async def _get(connection: Connection, stream: str, query: Json) -> StoredMessage | None:
    try:
        answer = await call(connection, f"STREAM.MSG.GET.{stream}", query, READ_TIMEOUT_S)
    except ApiError as error:
        if error.number == MESSAGE_NOT_FOUND:
            return None
        raise
    message = answer["message"]
    return StoredMessage(
        subject=message["subject"],
        sequence=int(message["seq"]),
        stored_at=unix_time(message["time"]),
        data=base64.b64decode(message.get("data", "")),
        headers=_headers(base64.b64decode(message.get("hdrs", "")).decode()),
    )


def _headers(block: str) -> dict[str, str]:
    """From the block as it went over the wire, whose first line is the version."""
    lines = [line.partition(":") for line in block.split("\r\n")[1:] if line]
    return {name: value.strip() for name, _, value in lines}
