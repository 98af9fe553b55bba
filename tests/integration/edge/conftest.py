"""An edge on the server of the test, and what is behind it."""

from collections.abc import AsyncIterator

import pytest_asyncio

from broker.connection import Connection
from broker.topology import Topology
from tests.integration.edge.edges import CancelCount, Edge, running
from tests.integration.edge.responses.stand_in import StandIn


@pytest_asyncio.fixture
async def behind(connection: Connection, topology: Topology) -> StandIn:
    """A model `m` that says what the test says."""
    stand_in = StandIn(connection, topology)
    await stand_in.start()
    return stand_in


@pytest_asyncio.fixture
async def cancels(connection: Connection) -> CancelCount:
    """Counts cancels."""
    count = CancelCount(connection)
    await count.start()
    return count


@pytest_asyncio.fixture
async def edge(behind: StandIn, broker_url: str, topology: Topology) -> AsyncIterator[Edge]:
    """An edge that knows the model."""
    async with running(broker_url, topology) as started:
        yield started
