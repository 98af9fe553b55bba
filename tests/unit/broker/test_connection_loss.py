"""When a connection was lost, as long as the client library has not said so."""

import asyncio
from typing import cast

from broker.connection import BrokerOptions, Connection
from broker.direct_client import DirectClient


class _Client:
    """As far as a connection looks at it."""

    is_connected = True

    def jetstream(self, timeout: float) -> None: ...


async def test_a_loss_that_is_only_just_noticed_is_as_young_as_can_be() -> None:
    """A moment after the socket is gone nobody has been cut off for long, whenever the last loss was."""
    client, loop = _Client(), asyncio.get_running_loop()
    connection = Connection(cast(DirectClient, client), BrokerOptions(url="nats://127.0.0.1:1"))
    client.is_connected = False
    assert loop.time() - connection.lost_at < 1

    await connection._on_disconnected()
    lost_at = connection.lost_at
    await asyncio.sleep(0.01)
    assert connection.lost_at == lost_at

    client.is_connected = True
    await connection._on_reconnected()
    client.is_connected = False
    assert connection.lost_at > lost_at
