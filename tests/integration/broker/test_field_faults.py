"""Faults that others had with JetStream and nats-py, run here: what the design rules out stays ruled out."""

import asyncio
import time

import pytest

from broker import answer_stream, patience
from broker.client import Headrace
from broker.connection import BrokerError, BrokerOptions, Connection
from broker.jetstream_api import STREAM_NOT_FOUND, ApiError, call
from broker.server import EmbeddedServer
from broker.topology import Topology, TopologySettings, depths, initialise, verify
from broker.work_queue import nak
from schemas.faults import RequestFault
from tests.integration.broker.handling import handling, publish
from tests.integration.broker.test_attach import Owner, text_of
from tests.integration.conftest import SMALL

GIVEN_BACK = 30


async def test_no_number_of_deliveries_is_too_many(connection: Connection, topology: Topology) -> None:
    """D11, D12: given back at once, 30 times in a row, a message still comes again, and its ack frees its place.

    With a limit it would stay in the queue for ever and nobody would be told. Stages decide on the count themselves.
    """
    async with handling(connection, slots=2) as handler:
        await publish(connection, 1)
        for number in range(1, GIVEN_BACK + 1):
            delivery = (await handler.wait_for(number))[-1]
            assert delivery.deliveries == number
            handler.queue.let_go(delivery)
            await nak(connection, delivery.ack_subject)
        last = (await handler.wait_for(GIVEN_BACK + 1))[-1]
        await handler.queue.ack(last)
        assert (await depths(connection)).streams["REQUESTS"].messages == 0


async def test_a_slow_reader_misses_nothing(
    broker_url: str, connection: Connection, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D18: ten results may wait for a reader and a hundred come: those that were dropped are read from the stored."""
    monkeypatch.setattr(answer_stream, "BACKLOG", 10)
    owner = Owner(connection, topology, "slow")
    async with Headrace(broker_url) as client:
        chunks = client.attach("slow")
        await owner.store(0, 1)
        text = (await anext(chunks)).text
        for number in range(1, 100):
            await owner.store(number, number + 1, final=number == 99)
        async with asyncio.timeout(30):
            async for chunk in chunks:
                assert chunk.text_from == len(text)
                text += chunk.text
    assert text == text_of(0, 100)


async def test_a_request_that_is_purged_is_no_silence(
    broker_url: str, connection: Connection, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D30: somebody empties the queue under a request: its client is told some time after the deadline."""
    monkeypatch.setattr(patience, "SILENCE_S", 0.3)
    monkeypatch.setattr(patience, "AFTER_DEADLINE_S", 1.0)
    async with Headrace(broker_url) as client:
        asking = asyncio.create_task(client.complete(prompt="x", model="m", deadline_s=1.0))
        async with asyncio.timeout(30):
            while not (await depths(connection)).streams["REQUESTS"].messages:  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.02)
            await call(connection, "STREAM.PURGE.REQUESTS")
            with pytest.raises(RequestFault) as raised:
                await asking
    assert raised.value.code == "unavailable"


async def test_a_message_that_is_purged_in_hand_holds_nothing_up(connection: Connection, topology: Topology) -> None:
    """D30: purged while it is worked on: its ack is answered as any other, and its slot is free for the next."""
    async with handling(connection, slots=1) as handler:
        await publish(connection, 1)
        [delivery] = await handler.wait_for(1)
        await call(connection, "STREAM.PURGE.REQUESTS")
        begin = time.monotonic()
        await handler.queue.ack(delivery)
        assert time.monotonic() - begin < 5
        await publish(connection, 1)
        await handler.wait_for(2)


async def test_streams_that_are_gone_are_made_again(connection: Connection, topology: Topology) -> None:
    """D6: the broker comes back with nothing (its store was lost): stages say what is missing, and can start again."""
    async with handling(connection) as handler:
        await publish(connection, 1)
        await handler.wait_for(1)
        for stream in list((await depths(connection)).streams):
            await call(connection, f"STREAM.DELETE.{stream}")
        with pytest.raises(ApiError) as raised:
            await asyncio.wait_for(handler.task, 30)
        assert raised.value.number == STREAM_NOT_FOUND
        assert not handler.queue.attached
    assert await initialise(connection, SMALL) == topology == await verify(connection, patience_s=0)
    async with handling(connection) as handler:
        await publish(connection, 1)
        await handler.wait_for(1)


async def test_a_store_that_is_too_small_says_what_to_do() -> None:
    """The server reserves every stream's limit: `initialise` names the stream, the server's limit and our settings."""
    server = await EmbeddedServer.start(max_file_store=64 * 1024 * 1024)
    connection = await Connection.open(BrokerOptions(url=server.url))
    try:
        with pytest.raises(BrokerError, match=r"no room for [A-Z_0-9]+: .*max_file_store.*results_max_bytes"):
            await initialise(connection, TopologySettings(partitions=1))
    finally:
        await connection.close()
        await server.stop()
