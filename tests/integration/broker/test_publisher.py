"""Publishing: what a caller is told when a message was stored, was stored before, does not fit, or has no place."""

import asyncio

import pytest

from broker import subjects
from broker.connection import Connection, Inbound, NotSendable, TooLarge, Unavailable
from broker.direct_get import last_of_subject
from broker.publisher import Full, Publisher, Stored, headers_size
from broker.server import EmbeddedServer
from broker.topology import Topology, depths
from broker.work_queue import WorkQueue, confirm_ack
from tests.integration.conftest import SMALL

SUBJECT = subjects.request("acme", "m")


async def test_a_full_subject_refuses_at_once_and_takes_again_after_an_ack(
    connection: Connection, topology: Topology
) -> None:
    """D15: one tenant's queue at its limit says `Full` in no time, others go on, and one ack makes room for one."""
    publisher = Publisher(connection)
    for _ in range(SMALL.requests_per_subject):
        await publisher.publish(SUBJECT, b"x")
    async with asyncio.timeout(10):
        with pytest.raises(Full, match=r"maximum messages per subject exceeded \(10077\)"):
            await publisher.publish(SUBJECT, b"one too many")
    await publisher.publish(subjects.request("other", "m"), b"x")
    await _ack_one(connection)
    await publisher.publish(SUBJECT, b"x")
    with pytest.raises(Full):
        await publisher.publish(SUBJECT, b"x")


async def test_publishing_patiently_waits_for_room(connection: Connection, topology: Topology) -> None:
    """A full stream delays `publish_patiently`, it neither fails nor loses the message."""
    publisher = Publisher(connection)
    for _ in range(SMALL.requests_per_subject):
        await publisher.publish(SUBJECT, b"x")
    patient = asyncio.create_task(publisher.publish_patiently(SUBJECT, b"patient", message_id="acme.1"))
    await asyncio.sleep(0.1)
    assert not patient.done()
    await _ack_one(connection)
    assert await asyncio.wait_for(patient, 10) == Stored(SMALL.requests_per_subject + 1)


async def test_patience_can_have_an_end(connection: Connection, topology: Topology) -> None:
    """With `patience_s` the caller learns in time what stood in the way; with `wait_when_full` off, `Full` at once."""
    publisher = Publisher(connection)
    for _ in range(SMALL.requests_per_subject):
        await publisher.publish(SUBJECT, b"x")
    started = asyncio.get_running_loop().time()
    with pytest.raises(Full):
        await publisher.publish_patiently(SUBJECT, b"x", message_id="1", patience_s=5, wait_when_full=False)
    assert asyncio.get_running_loop().time() - started < 4
    for subject, error in ((SUBJECT, Full), ("hr.nobody.here", Unavailable)):
        started = asyncio.get_running_loop().time()
        with pytest.raises(error):
            await publisher.publish_patiently(subject, b"x", message_id="1", patience_s=0.3)
        assert 0.1 < asyncio.get_running_loop().time() - started < 4


async def test_patience_without_a_broker_has_an_end_too(
    server: EmbeddedServer, connection: Connection, topology: Topology
) -> None:
    """While the broker is away nothing is piled up in the client; the caller learns of it in time."""
    await server.kill()
    started = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable):
        await Publisher(connection).publish_patiently(SUBJECT, bytes(3_000_000), message_id="1", patience_s=0.3)
    assert asyncio.get_running_loop().time() - started < 4


async def test_publishing_patiently_can_be_cancelled(connection: Connection, topology: Topology) -> None:
    """Whoever waits for room can give up."""
    patient = asyncio.create_task(
        Publisher(connection).publish_patiently("hr.nothing.here", b"", message_id="1", timeout_s=0.2)
    )
    await asyncio.sleep(0.1)
    patient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await patient


@pytest.mark.parametrize("body", [8 * 1024 * 1024, 8 * 1024 * 1024 - 40, 20 * 1024 * 1024])
async def test_too_large_is_found_before_anything_is_sent(
    connection: Connection, topology: Topology, body: int
) -> None:
    """D17: headers count too. The server would cut the connection for good; it stays open here, and nothing is sent."""
    sent = connection.client.stats["out_msgs"]
    with pytest.raises(TooLarge):
        await Publisher(connection).publish(SUBJECT, bytes(body), message_id="acme.1", content_type="application/json")
    assert connection.client.stats["out_msgs"] == sent
    await Publisher(connection).publish(SUBJECT, b"still open")
    assert not connection.closed.is_set()


async def test_long_headers_are_counted(connection: Connection, topology: Topology) -> None:
    """D17: a body that fits by itself and headers that do not any more: refused before anything is sent."""
    sent = connection.client.stats["out_msgs"]
    with pytest.raises(TooLarge):
        await Publisher(connection).publish(SUBJECT, bytes(connection.max_payload), content_type="x" * 2000)
    assert connection.client.stats["out_msgs"] == sent


async def test_larger_than_the_stream_takes_is_too_large_as_well(connection: Connection, topology: Topology) -> None:
    """A request above `max_request_bytes` fits the connection but not REQUESTS: same error, trying again is no use."""
    with pytest.raises(TooLarge, match="10054"):
        await Publisher(connection).publish(SUBJECT, bytes(topology.max_request_bytes + 1))


async def test_publishing_again_with_the_same_id_is_success(connection: Connection, topology: Topology) -> None:
    """D21: an answer that was lost is no reason for a second message: the retry gets the first one's sequence."""
    publisher = Publisher(connection)
    first = await publisher.publish(SUBJECT, b"x", message_id="acme.1")
    assert await publisher.publish(SUBJECT, b"x", message_id="acme.1") == first
    assert await publisher.publish_patiently(SUBJECT, b"x", message_id="acme.1") == Stored(first, duplicate=True)
    assert await publisher.publish_patiently(SUBJECT, b"x", message_id="acme.2") == Stored(first + 1)
    assert (await depths(connection)).streams["REQUESTS"].messages == 2


async def test_headers_arrive_as_they_were_sent(connection: Connection, topology: Topology) -> None:
    """Message id, content type and trace context stand under their standard names; there are no others."""
    await Publisher(connection).publish(
        subjects.ticket("m", "acme"), b"x", message_id="a.1.0", content_type="application/json", trace="00-ab-cd-01"
    )
    stored = await last_of_subject(connection, "TICKETS", subjects.ticket("m", "acme"))
    assert stored is not None
    own = {name: value for name, value in stored.headers.items() if name not in _SERVERS_OWN}
    assert own == {"Nats-Msg-Id": "a.1.0", "Content-Type": "application/json", "traceparent": "00-ab-cd-01"}


@pytest.mark.parametrize("value", ["ø", "a\r\nX: 1", "\ud83d", "a\nb", " padded"])
async def test_headers_take_plain_ascii_only(connection: Connection, topology: Topology, value: str) -> None:
    """D28: nothing that a user typed can break or inject a header; it is refused before it is sent."""
    with pytest.raises(NotSendable, match="Content-Type"):
        await Publisher(connection).publish(SUBJECT, b"x", content_type=value)
    assert (await depths(connection)).streams["REQUESTS"].messages == 0


@pytest.mark.parametrize(
    "subject", ["hr.request.acme.*", "hr.request..m", "hr.request.>", "hr.request.a b.m", "hr", ""]
)
async def test_wildcards_and_empty_tokens_are_no_subject(
    connection: Connection, topology: Topology, subject: str
) -> None:
    """D28: the client library publishes to `a.*` and `a..b`; messages would go where nobody looks."""
    with pytest.raises(NotSendable):
        await Publisher(connection).publish(subject, b"x")


async def test_no_stream_is_named(connection: Connection, topology: Topology) -> None:
    """D27: with nobody on the subject, the error comes at once and names it."""
    async with asyncio.timeout(4):
        with pytest.raises(Unavailable, match=r"hr\.nobody\.here"):
            await Publisher(connection).publish("hr.nobody.here", b"x")


async def test_no_stream_but_a_listener_is_named_after_the_timeout(connection: Connection, topology: Topology) -> None:
    """D27: a plain subscriber on the subject hides that there is no stream; the time-out still names it."""

    async def listen(message: Inbound) -> None:
        pass

    subscription = await connection.subscribe("hr.nobody.here", listen)
    with pytest.raises(Unavailable, match=r"hr\.nobody\.here"):
        await Publisher(connection).publish("hr.nobody.here", b"x", timeout_s=0.2)
    await subscription.close()


async def test_a_listener_that_answers_is_no_stream(connection: Connection, topology: Topology) -> None:
    """An answer that is no acknowledgement of a stream never counts as stored."""

    async def answer(message: Inbound) -> None:
        await connection.publish(message.reply, b"{}")

    subscription = await connection.subscribe("hr.nobody.here", answer)
    with pytest.raises(Unavailable, match="no stream"):
        await Publisher(connection).publish("hr.nobody.here", b"x")
    await subscription.close()


def test_the_size_of_headers_is_what_goes_over_the_wire() -> None:
    """The size check counts exactly the bytes that the server counts."""
    assert headers_size({}) == 0
    assert headers_size({"A": "b", "Cd": "ef"}) == len(b"NATS/1.0\r\nA: b\r\nCd: ef\r\n\r\n")


_SERVERS_OWN = ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending")


async def _ack_one(connection: Connection) -> None:
    """Takes one message out of REQUESTS."""
    queue = WorkQueue(connection, "REQUESTS", "preprocess", slots=1, ack_wait_s=5)
    await queue.start()
    async for batch in queue.batches():
        await confirm_ack(connection, batch[0].ack_subject)
        break
    await queue.stop()
