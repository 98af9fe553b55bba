"""How many messages wait for a consumer, which a delivery says too, but only while there are some."""

from broker.connection import Connection
from broker.jetstream_api import call


async def undelivered(connection: Connection, stream: str, consumer: str, timeout_s: float = 2.0) -> int:
    """Messages that the consumer has not handed out yet. Raises `Unavailable`, `ApiError`."""
    info = await call(connection, f"CONSUMER.INFO.{stream}.{consumer}", timeout_s=timeout_s)
    return int(info.get("num_pending", 0))
