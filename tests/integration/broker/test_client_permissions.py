"""A client needs no more permissions than docs/protocol.md lists, and can do nothing beyond them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from broker.client import Headrace
from broker.connection import BrokerOptions, Connection, Unavailable
from broker.patience import anything_waits
from broker.permissions import permissions
from broker.registry import Registry
from broker.server import EmbeddedServer
from broker.topology import TopologySettings, initialise
from schemas.codec import encode
from schemas.model import ModelCard
from schemas.result import Result, Usage
from schemas.ticket import EngineSampling

TENANT = permissions("tenant", "acme")
CARD = ModelCard(
    slug="m",
    name="m",
    engine="simulated",
    context_length=64,
    vocab_size=8,
    eos_ids=[],
    defaults=EngineSampling(max_tokens=0),
)


@pytest_asyncio.fixture
async def secured() -> AsyncIterator[EmbeddedServer]:
    """A broker with a user for the stages and one for the tenant `acme`."""
    users: list[dict[str, object]] = [
        {"user": "stages", "password": "s"},
        {"user": "acme", "password": "a", "permissions": TENANT},
    ]
    server = await EmbeddedServer.start(authorization={"users": users})
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def stages(secured: EmbeddedServer) -> AsyncIterator[Connection]:
    """The stages' own connection, with all streams and one model."""
    connection = await Connection.open(BrokerOptions(secured.url, user="stages", password="s"))
    await initialise(connection, TopologySettings(partitions=2))
    await Registry(connection).publish_model(CARD, {})
    yield connection
    await connection.close()


def acme(server: EmbeddedServer) -> BrokerOptions:
    return BrokerOptions(server.url, user="acme", password="a", inbox_prefix="_INBOX_tenant_acme")


async def test_a_request_from_start_to_replay(secured: EmbeddedServer, stages: Connection) -> None:
    """Connect, submit, lose every live result, read the stored ones: all of it within the permissions."""
    async with Headrace(options=acme(secured), tenant="acme") as client:
        request = asyncio.create_task(client.complete(prompt="x", request_id="r1"))
        await client._subscription.close()
        await stored_answer(stages, client.session)
        client._on_reconnect()
        done = await asyncio.wait_for(request, 10)
        assert done.text == "Paris"
        assert [card.name for card in await client.models()] == ["m"]
        await client.cancel("r1")


async def test_attach(secured: EmbeddedServer, stages: Connection) -> None:
    """Another client of the tenant reads the answer within the same permissions, and sees whether any of it waits."""
    await stored_answer(stages, "elsewhere")
    async with Headrace(options=acme(secured), tenant="acme") as client:
        assert "".join([chunk.text async for chunk in client.attach("r1")]) == "Paris"
        assert not await anything_waits(client._connection, "acme")


async def stored_answer(stages: Connection, session: str) -> None:
    """What an owner would have stored for the request, on each partition that it may have."""
    result = Result(
        choice=0, attempt=1, at=1, text="Paris", finish="stop", usage=Usage(prompt_tokens=1, completion_tokens=1)
    )
    for partition in range(2):
        await stages.publish(f"hr.result.{partition}.acme.{session}.r1", encode(result))


@pytest.mark.parametrize("subject", ["hr.request.other.m", "hr.result.0.acme.s.r", "hr.journal.0", "$JS.ACK.x"])
async def test_nothing_beyond(secured: EmbeddedServer, stages: Connection, subject: str) -> None:
    """A publish outside of the tenant's own subjects does not arrive."""
    arrived = asyncio.Event()

    async def on_message(_: object) -> None:
        arrived.set()

    await stages.subscribe(subject, on_message)
    await stages.prove_subscriptions()
    connection = await Connection.open(acme(secured))
    with pytest.raises(Unavailable):
        await connection.request(subject, b"x", timeout_s=0.5)
    assert not arrived.is_set()
    await connection.close()


async def test_wrong_password(secured: EmbeddedServer) -> None:
    """Who may not in is told so, not that there is no broker."""
    with pytest.raises(Unavailable, match=r"(?i)authorization"):
        await Connection.open(BrokerOptions(secured.url, user="acme", password="wrong"), patience_s=1)
