"""Backlogs heard on a real broker: what would come too late is refused at once, everybody else passes."""

import asyncio

from prometheus_client import CollectorRegistry

from broker import subjects
from broker.connection import Connection
from broker.registry import Registry
from broker.topology import Topology
from schemas.backlog import Backlog
from schemas.codec import encode
from schemas.request import Request
from stages.preprocess.admission import LONGEST_RETRY_S
from stages.preprocess.block_hashes import block_hashes
from tests.integration.preprocess.replicas import Start, ends, request, settled, submit, tickets
from tests.unit.preprocess.vocabularies import card, files, t256


async def tell(connection: Connection, tokens: int = 20_000) -> None:
    """A scheduler that has so many tokens of tenant t and goes at 50 a second."""
    said = Backlog(scheduler="s", model="tiny", tickets=20, tokens=tokens, rate=50.0, tenants={"t": tokens})
    await connection.publish(subjects.backlog("tiny"), encode(said))
    await connection.prove_subscriptions()  # what was published before is on its way to all
    await asyncio.sleep(0.1)


async def test_what_would_come_too_late_is_busy(connection: Connection, topology: Topology, start: Start) -> None:
    """400 s of work: one that has 60 s is refused and told when to come again; one that has the time, another tenant
    and another model go on. Once the scheduler is silent nothing is known any more."""
    await Registry(connection).publish_model(card("second", name="second"), files(t256()))
    replica = await start()
    assert _refusals(replica.context.telemetry.registry) == 0  # there from the beginning: an alert sees the first one
    await connection.publish(subjects.backlog("tiny"), b"\xff")  # no word at all: harms nobody
    await tell(connection)
    await submit(connection, request("late", n=2, deadline_s=60.0))
    await submit(connection, request("patient", deadline_s=500.0))
    await submit(connection, request("other", deadline_s=60.0), tenant="other")
    await submit(connection, request("second", deadline_s=60.0), model="second")
    await settled(connection)
    found = await ends(connection, topology, 2)
    assert [(end.key, end.choice, end.fault.code) for end in found] == [("t.late", 0, "busy"), ("t.late", 1, "busy")]
    assert found[0].fault.retry_after == LONGEST_RETRY_S
    assert sorted(ticket.key for ticket in await tickets(connection, 2)) == ["other.other", "t.patient"]
    assert [ticket.key for ticket in await tickets(connection, 1, "second")] == ["t.second"]
    assert _refusals(replica.context.telemetry.registry) == 1
    await asyncio.sleep(2.1)
    await submit(connection, request("later", deadline_s=60.0))
    await settled(connection)
    assert [ticket.request for ticket in await tickets(connection, 1)] == ["later"]


async def test_the_longest_wait_is_a_setting(connection: Connection, topology: Topology, start: Start) -> None:
    """Also where the deadline would leave time."""
    await start(max_wait_s=5.0)
    await tell(connection, tokens=500)
    await submit(connection, request("r"))
    await settled(connection)
    (end,) = await ends(connection, topology, 1)
    assert (end.fault.code, end.fault.retry_after) == ("busy", 5.0)


async def test_tickets_carry_the_hashes_of_their_blocks(connection: Connection, start: Start) -> None:
    """As the model's card asks for them, the same for every choice."""
    hashing = card("hashing", name="hashing", block_size=4, hash_root=b"root")
    await Registry(connection).publish_model(hashing, files(t256()))
    await start()
    ids = list(range(10))
    await submit(connection, Request(id="r", session="s", prompt=ids, n=2, cache_salt="x"), model="hashing")
    found = await tickets(connection, 2, "hashing")
    assert [ticket.block_hashes for ticket in found] == [block_hashes(ids, 4, b"root", "x")] * 2


def _refusals(registry: CollectorRegistry) -> float | None:
    return registry.get_sample_value("headrace_backlog_refusals_total", {"stage": "preprocess", "model": "tiny"})
