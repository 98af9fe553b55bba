"""What edges keep of requests, on a real broker: the first one counts, and any of them can read it."""

import asyncio
import random

import pytest

from broker.connection import Connection
from broker.kept_requests import KeptRequests
from broker.topology import Topology, depths
from schemas.faults import RequestFault
from schemas.kept_request import KeptRequest
from tests.integration.conftest import SMALL


def kept(digest: str) -> KeptRequest:
    return KeptRequest(endpoint="/v1/responses", created_at=1, digest=digest, body="{}", items="[]")


async def test_the_first_one_counts(connection: Connection, other: Connection, topology: Topology) -> None:
    """Of edges that keep something under one id at once exactly one is the first; the others learn what it said."""
    edges = [KeptRequests(each, "acme") for each in (connection, other)]
    answers = await asyncio.gather(*(edge.put_first("r1", kept(str(n))) for n, edge in enumerate(edges * 3)))
    first = answers.index(None)
    assert [each for each in answers if each is not None] == [kept(str(first))] * 5
    assert [await edge.get("r1") for edge in edges] == [kept(str(first))] * 2


async def test_tenants_and_ids_are_apart(connection: Connection, topology: Topology) -> None:
    """Nobody gets what another tenant keeps under the same id."""
    await KeptRequests(connection, "acme").put_first("r1", kept("a"))
    assert await KeptRequests(connection, "other").get("r1") is None
    assert await KeptRequests(connection, "acme").get("r2") is None


async def test_what_is_removed_can_be_kept_again(connection: Connection, topology: Topology) -> None:
    """After a removal nothing is there, and the next one is the first."""
    store = KeptRequests(connection, "acme")
    await store.put_first("r1", kept("a"))
    await store.remove("r1")
    assert await store.get("r1") is None
    assert await store.put_first("r1", kept("b")) is None
    assert await store.get("r1") == kept("b")
    assert await store.put_first("r1", kept("c")) == kept("b")


async def test_a_request_that_is_too_large(connection: Connection, topology: Topology) -> None:
    """It is refused: what does not fit a message before anything is sent, what exceeds the record's limit there."""
    for size in (SMALL.response_max_bytes, connection.client.max_payload):
        huge = KeptRequest(endpoint="/", created_at=1, body=random.Random(1).randbytes(2 * size).hex())
        with pytest.raises(RequestFault, match="too_large"):
            await KeptRequests(connection, "acme").put_first("r1", huge)


async def test_conversations_are_packed(connection: Connection, topology: Topology) -> None:
    """Long text takes little room, and is the same again; what is there and gives way is replaced as a whole."""
    store = KeptRequests(connection, "acme")
    long = KeptRequest(endpoint="/", created_at=1, items="x" * 2 * connection.client.max_payload)
    assert await store.put_first("r1", long) is None
    assert (await depths(connection)).streams["KV_hr_responses"].bytes < 200_000
    assert await store.get("r1") == long
    assert await store.put_first("r1", kept("a"), lambda first: _is(first, kept("z"))) == long
    assert await store.put_first("r1", kept("a"), lambda first: _is(first, long)) is None
    assert await store.get("r1") == kept("a")


async def _is(one: KeptRequest, other: KeptRequest) -> bool:
    return one == other
