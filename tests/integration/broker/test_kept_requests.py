"""What edges keep of requests, on a real broker: the first one counts, and any of them can read it."""

import asyncio

import pytest

from broker.connection import Connection
from broker.kept_requests import KeptRequests
from broker.topology import Topology
from schemas.faults import RequestFault
from schemas.kept_request import KeptRequest


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
    """It is refused before anything is sent."""
    huge = KeptRequest(endpoint="/", created_at=1, body="x" * connection.client.max_payload)
    with pytest.raises(RequestFault, match="too_large"):
        await KeptRequests(connection, "acme").put_first("r1", huge)
