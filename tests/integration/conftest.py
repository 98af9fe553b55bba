"""A real nats-server, empty and new for every test (25 ms), and Headrace's streams on it where they are asked for."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from broker.connection import BrokerOptions, Connection
from broker.server import EmbeddedServer
from broker.topology import Topology, TopologySettings, initialise

SMALL = TopologySettings(
    partitions=3,
    requests_per_subject=16,
    tickets_per_subject=16,
    request_ack_wait_s=1.0,
    ticket_ack_wait_s=1.5,
)
"""Limits that a test reaches quickly, and ack waits that it can wait for."""


@pytest_asyncio.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    """A nats-server of this test's own, to be killed and restarted as it likes.

    Not one for many tests: a stream that was just deleted cannot always be made again at once (error 10049), and
    message ids of an earlier test would count as duplicates.
    """
    running = await EmbeddedServer.start()
    yield running
    await running.stop()


@pytest.fixture
def broker_url(server: EmbeddedServer) -> str:
    """Where the server of this test listens."""
    return server.url


@pytest_asyncio.fixture
async def connection(broker_url: str) -> AsyncIterator[Connection]:
    """A connection of this test's own."""
    opened = await Connection.open(BrokerOptions(url=broker_url, name="test"), patience_s=10)
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def other(broker_url: str) -> AsyncIterator[Connection]:
    """A second process' connection."""
    opened = await Connection.open(BrokerOptions(url=broker_url, name="other"), patience_s=10)
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def topology(connection: Connection) -> Topology:
    """All streams, with the limits of `SMALL`."""
    return await initialise(connection, SMALL)
