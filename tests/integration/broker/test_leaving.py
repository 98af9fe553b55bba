"""Who leaves an answer ends its request, at whatever moment that is."""

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from broker.client import Headrace
from broker.connection import Connection
from broker.direct_get import last_of_subject
from broker.registry import Registry
from broker.submitting import submit
from broker.topology import Topology, depths
from schemas.codec import encode
from schemas.result import Result
from tests.integration.broker.test_attach import CARD
from tests.integration.conftest import SMALL


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
    assert await is_cancelled(connection, "r1")


@pytest.mark.parametrize("way", ["break", "error", "held", "duplicate"])
async def test_by_the_end_of_the_client(broker_url: str, connection: Connection, topology: Topology, way: str) -> None:
    """A loop that is left, by an error too, and the client closed at once: cancelled, and nothing fails later."""
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    await Registry(connection).publish_model(CARD, {})
    with contextlib.suppress(ZeroDivisionError):
        async with Headrace(broker_url) as client:
            if way == "duplicate":
                await connection.request("hr.request.default.m", b"", 2, headers={"Nats-Msg-Id": "default.r1"})
            stream = client.stream(prompt="x", model="m", request_id="r1")
            answering = asyncio.create_task(answer_when_stored(connection, client.session, "r1"))
            async for _ in stream:
                if way == "error":
                    raise ZeroDivisionError  # whatever a caller does with a piece
                break
            await answering
            if way != "held":
                del stream
    assert await is_cancelled(connection, "r1")
    gc.collect()
    await asyncio.sleep(0.1)
    assert not failed


async def answer_when_stored(connection: Connection, session: str, request_id: str) -> None:
    """The first piece of an answer, on each partition that it may have."""
    async with asyncio.timeout(10):
        while not (await depths(connection)).streams["REQUESTS"].messages:  # noqa: ASYNC110 - asked of a server
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # who follows another session's results subscribes first
    piece = encode(Result(choice=0, attempt=1, at=1, token_from=0, token_to=1, ids=[1], text="Pa"))
    for partition in range(SMALL.partitions):
        await connection.request(f"hr.result.{partition}.default.{session}.{request_id}", piece, 5)


async def is_cancelled(connection: Connection, request_id: str) -> bool:
    subject = f"$KV.hr_cancelled.default.{request_id}"
    return await last_of_subject(connection, "KV_hr_cancelled", subject) is not None
