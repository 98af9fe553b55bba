"""Two edges in this process, each with a connection of its own, as they are in processes; what is behind is played.

They are started once for all tests here: ids and keys are new in each test, so that none sees anything of another.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import openai
import pytest
import pytest_asyncio

from broker.connection import BrokerOptions, Connection
from broker.free_ports import free_port
from broker.registry import Registry
from broker.server import EmbeddedServer
from broker.topology import Topology, initialise
from stages.edge.access.keys import KeyEntry, add_key, digest_of
from stages.edge.settings import EdgeSettings
from stages.edge.stage import run
from stages.lifecycle import StageContext
from stages.telemetry import Telemetry
from tests.integration.conftest import SMALL
from tests.integration.edge.responses.stand_in import FULL, StandIn

SHARED = pytest.mark.asyncio(loop_scope="package")
"""For the tests that use what is started once."""


LIMITS = replace(SMALL, requests_per_subject=200)
"""Room for the requests of all tests, since nobody takes any out."""


@dataclass(frozen=True)
class Scene:
    """A broker, OpenAI's clients at two edges, and what is behind them."""

    server: EmbeddedServer
    connection: Connection
    clients: tuple[openai.AsyncOpenAI, openai.AsyncOpenAI]
    stand_in: StandIn


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """Started once."""
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    for tenant in ("default", "stranger"):
        add_key(keys, KeyEntry(name=tenant, sha256=digest_of(tenant), tenant=tenant))
    async with AsyncExitStack() as stack:
        server = await EmbeddedServer.start()
        stack.push_async_callback(server.stop)
        connection = await Connection.open(BrokerOptions(url=server.url, name="test"), patience_s=10)
        stack.push_async_callback(connection.close)
        topology = await initialise(connection, LIMITS)
        stand_in = StandIn(connection, topology)
        await stand_in.start()
        await Registry(connection).publish_model(FULL, {})
        one, two = [await stack.enter_async_context(_edge(server.url, topology, keys)) for _ in range(2)]
        yield Scene(server, connection, (one, two), stand_in)


@pytest.fixture
def stand_in(scene: Scene) -> StandIn:
    """A model `m` that says what the test says, and has heard nothing yet."""
    scene.stand_in.reset()
    return scene.stand_in


@pytest.fixture
def client(scene: Scene) -> openai.AsyncOpenAI:
    """OpenAI's client at an edge."""
    return scene.clients[0]


@pytest.fixture
def other(scene: Scene) -> openai.AsyncOpenAI:
    """OpenAI's client at another edge."""
    return scene.clients[1]


@pytest.fixture
def stranger(client: openai.AsyncOpenAI) -> openai.AsyncOpenAI:
    """Another tenant's, at the first edge."""
    return client.with_options(api_key="stranger")


@asynccontextmanager
async def _edge(broker_url: str, topology: Topology, keys: Path) -> AsyncGenerator[openai.AsyncOpenAI]:
    port = free_port()
    connection = await Connection.open(BrokerOptions(url=broker_url, name="edge"), patience_s=10)
    ready = asyncio.Event()
    context = StageContext(
        connection=connection,
        topology=topology,
        stage="edge",
        instance=f"edge-{port}",
        telemetry=Telemetry("edge", f"edge-{port}", environ={}),
        stopping=asyncio.Event(),
        grace_s=2.0,
    )
    context.on_ready = lambda now: ready.set() if now else None
    task = asyncio.create_task(run(context, EdgeSettings(port=port, keys_file=str(keys), keep_alive_s=0.3)))
    try:
        async with asyncio.timeout(30):
            await ready.wait()
        async with client_at(port) as client:
            yield client
    finally:
        context.stopping.set()
        await task
        await connection.close()


def client_at(port: int) -> openai.AsyncOpenAI:
    """OpenAI's client, strict in what it takes for an answer. The keys are called as their tenants."""
    return openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key="default",
        max_retries=0,
        timeout=30,
        _strict_response_validation=True,
    )
