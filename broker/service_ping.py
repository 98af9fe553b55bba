"""Who is there of a NATS micro service: every instance answers `$SRV.PING.<name>`."""

import asyncio
import json

from broker.connection import NOBODY_THERE, Connection, Inbound

MOST = 10_000


def ping_subject(service: str) -> str:
    return f"$SRV.PING.{service}"


async def instances(connection: Connection, service: str, listen_s: float) -> set[str]:
    """The ids of those that answer within `listen_s`. Raises `Unavailable`."""
    found: set[str] = set()

    def on_answer(message: Inbound) -> None:
        if message.headers.get("Status") != NOBODY_THERE and len(found) < MOST:
            found.add(_instance_in(message.data))

    inbox = connection.new_inbox()
    subscription = await connection.listen(inbox, on_answer)
    try:
        await connection.publish(ping_subject(service), b"", reply=inbox)
        await asyncio.sleep(listen_s)
    finally:
        await subscription.close()
    return found - {""}


def _instance_in(data: bytes) -> str:
    """ "" where it is no such answer: anybody may send to an inbox."""
    try:
        return str(json.loads(data)["id"])
    except (ValueError, TypeError, KeyError):
        return ""
