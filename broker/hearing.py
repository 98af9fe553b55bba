"""Whether anybody works for a model, by ear."""

import asyncio

from broker import subjects
from broker.connection import Connection, Inbound


async def worker_heard(connection: Connection, slug: str, within_s: float) -> bool:
    """Whether a worker of the model sends a heartbeat within that time (one comes every 0.5 s)."""
    heard = asyncio.Event()

    async def on_worker(_: Inbound) -> None:
        heard.set()

    subscription = await connection.subscribe(subjects.worker(slug, "*"), on_worker)
    try:
        async with asyncio.timeout(within_s):
            await heard.wait()
    except TimeoutError:
        return False
    finally:
        await subscription.close()
    return True
