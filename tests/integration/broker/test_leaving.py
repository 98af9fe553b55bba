"""Who leaves an answer ends its request, at whatever moment that is."""

import asyncio
from typing import Any

import pytest

from broker.client import Headrace
from broker.connection import Connection
from broker.direct_get import last_of_subject
from broker.registry import Registry
from broker.submitting import submit
from broker.topology import Topology
from tests.integration.broker.test_attach import CARD


async def test_while_it_is_being_submitted(
    broker_url: str, connection: Connection, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C8: the request is stored, but the client does not know it yet, and is left: it is cancelled all the same."""
    stored = asyncio.Event()

    async def slow(*arguments: Any) -> bool:
        duplicate = await submit(*arguments)
        stored.set()
        await asyncio.Event().wait()
        return duplicate

    monkeypatch.setattr("broker.client.submit", slow)
    await Registry(connection).publish_model(CARD, {})
    async with Headrace(broker_url) as client:
        task = asyncio.create_task(client.complete(prompt="x", model="m", request_id="r1"))
        await stored.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await last_of_subject(connection, "KV_hr_cancelled", "$KV.hr_cancelled.default.r1") is not None
