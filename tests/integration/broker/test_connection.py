"""Plain subscriptions: the first message after a proved one arrives, and closing waits for nobody."""

import asyncio

import pytest

from broker.connection import BrokerOptions, Connection, Inbound, NotConnectable, NotSendable
from broker.server import EmbeddedServer
from broker.topology import Topology
from broker.work_queue import WorkQueue
from tests.integration.broker.raw_client import publish_at_standstill


async def test_no_first_message_is_lost_after_a_proved_subscription(broker_url: str, connection: Connection) -> None:
    """D24: subscribe, prove, then somebody else publishes at once: 100 of 100 arrive."""
    got: asyncio.Queue[Inbound] = asyncio.Queue()
    for number in range(100):
        subscription = await connection.subscribe(f"first.{number}", got.put)
        await connection.prove_subscriptions()
        publish_at_standstill(broker_url, f"first.{number}", b"")
        assert (await asyncio.wait_for(got.get(), 10)).subject == f"first.{number}"
        await subscription.close()


async def test_closing_does_not_wait_for_messages_that_nobody_reads(
    connection: Connection, other: Connection, topology: Topology
) -> None:
    """D29: a pulled message that is still unread holds up neither the queue's stop nor the connection's end."""
    queue = WorkQueue(other, "REQUESTS", "preprocess", slots=4, ack_wait_s=topology.request_ack_wait_s)
    await queue.start()
    await connection.publish("hr.request.acme.m", b"")
    await asyncio.sleep(0.1)
    async with asyncio.timeout(10):
        await queue.stop()
        await other.close()


async def test_closing_without_a_broker_leaves_nothing_behind(broker_url: str, server: EmbeddedServer) -> None:
    """What was published while it was away goes nowhere, and no task of the connection is left."""
    before = asyncio.all_tasks()
    connection = await Connection.open(BrokerOptions(url=broker_url, name="leaving"), patience_s=10)

    async def ignore(message: Inbound) -> None: ...

    await connection.subscribe("some.>", ignore)
    await server.stop()
    async with asyncio.timeout(10):
        while connection.connected:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)
        await connection.publish("some.thing", b"x")
        await connection.close()
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("subject", ["", "a b", "a..b", ".a", "a.", "a\r\nPUB x 0", "a." + "x" * 5000])
async def test_what_is_no_subject_costs_nothing(connection: Connection, subject: str) -> None:
    """A subject that the server would answer by ending the connection is refused before anything is sent."""
    with pytest.raises(NotSendable):
        await connection.publish(subject, b"")
    with pytest.raises(NotSendable):
        await connection.request(subject, b"", 1)
    await connection.prove_subscriptions()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://:x", "nats://:x"),
        ("nats://me:secret@:x", "***@:x"),
        ("nats://me:sec/secret@a:1", "***@a:1"),
        ("nats://a:99999", "nats://a:99999"),
        ("nats://a:1,", "nats://a:1,"),
        ("nats://a:1,ws://b:2", "nats://a:1,ws://b:2"),
        ("http://a:1", "http://a:1"),
        ("nats://a:1,foo://me:secret@b", "***@b"),
        ("", ""),
    ],
)
async def test_what_is_no_url_is_named_at_once(url: str, shown: str) -> None:
    """A wrong setting is no broker that may still come: the error names it, without its secrets, and nobody waits."""
    with pytest.raises(NotConnectable) as raised:
        await Connection.open(BrokerOptions(url=url), patience_s=3600)
    assert repr(shown) in str(raised.value)
    assert "secret" not in str(raised.value)
