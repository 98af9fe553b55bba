"""Stored results, read again: for a client that missed some, came back, or came late."""

import asyncio
import json
import secrets
from typing import Any

from broker import subjects
from broker.connection import Connection, Inbound, Unavailable
from schemas.codec import decode, encoding_of
from schemas.result import Result

QUIET_S = 5.0
UNUSED_S = 0.25
"""A stream has at most 1,000 consumers, and thousands of clients may look at the same time: what was read goes soon."""

CREATE_PATIENCE_S = 2.0
"""A cluster that elects a leader does not answer at all: asked again, it may."""


async def stored_results(connection: Connection, partition: int, subject: str) -> list[Result]:
    """All stored results under `subject` (one request; wildcards allowed), in order. Raises `Unavailable`.

    Reads through a consumer of its own, because the create request carries the filter in its subject: a tenant's
    permissions can be given by it.
    """
    collected: list[Inbound] = []
    enough = asyncio.Event()
    expected = -1

    async def on_message(message: Inbound) -> None:
        collected.append(message)
        if len(collected) == expected:
            enough.set()

    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox, on_message)
    stream, name = subjects.results_stream(partition), f"replay_{secrets.token_hex(8)}"
    try:
        expected = await _create_consumer(connection, stream, name, subject, inbox)
        if len(collected) < expected:
            async with asyncio.timeout(QUIET_S):
                await enough.wait()
    except TimeoutError as error:
        raise Unavailable(f"{stream} sent {len(collected)} of {expected} stored results") from error
    finally:
        await subscription.close()
    return [decode(Result, each.data, encoding_of(each.headers.get("Content-Type", ""))) for each in collected]


async def _create_consumer(connection: Connection, stream: str, name: str, subject: str, inbox: str) -> int:
    """Creates a consumer that sends everything under `subject` to `inbox`; how much that is.

    The server removes it when nobody has listened for a while: a right to delete consumers could not be limited to
    one's own.
    """
    config = {
        "name": name,
        "deliver_policy": "all",
        "deliver_subject": inbox,
        "ack_policy": "none",
        "filter_subject": subject,
        "inactive_threshold": int(UNUSED_S * 1e9),
        "mem_storage": True,
        "num_replicas": 1,
    }
    answer = await connection.request(
        f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{subject}",
        json.dumps({"stream_name": stream, "config": config}).encode(),
        timeout_s=CREATE_PATIENCE_S,
    )
    created: dict[str, Any] = json.loads(answer.data)
    if "error" in created:
        raise Unavailable(f"replay of {subject}: {created['error'].get('description', created['error'])}")
    return int(created["num_pending"])
