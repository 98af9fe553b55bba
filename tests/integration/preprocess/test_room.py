"""Room for results on a real broker: a stream close to its limit makes new requests busy, and nothing else."""

import asyncio

from prometheus_client import CollectorRegistry

from broker import subjects
from broker.connection import Connection
from broker.jetstream_api import call
from broker.results import Filling, filling
from broker.topology import Topology
from tests.integration.preprocess.replicas import Start, ends, request, settled, stored, submit, tickets, until

LIMIT = 50_000


async def fill(connection: Connection, partition: int, size: int) -> None:
    """Gives the partition's results the limit of this test, and stores so many bytes there."""
    stream = subjects.results_stream(partition)
    config = (await call(connection, f"STREAM.INFO.{stream}"))["config"]
    await call(connection, f"STREAM.UPDATE.{stream}", {**config, "max_bytes": LIMIT})
    for number in range(size // 1000):
        await connection.request(subjects.result(partition, "t", "s", f"old{number}"), bytes(950), 5)


async def test_how_full_a_stream_is(connection: Connection, topology: Topology) -> None:
    """The part of the limit and the age of the oldest result, both the broker's own; an empty stream is not old."""
    assert await filling(connection, 0) == Filling(0.0, 0.0)
    await fill(connection, 0, 40_000)
    found = await filling(connection, 0)
    assert 0.7 < found.part < 0.95
    assert 0 < found.oldest_s < 30
    await asyncio.sleep(0.5)
    assert 0.5 < (await filling(connection, 0)).oldest_s - found.oldest_s + 0.01 < 30


async def test_a_new_request_is_busy_until_there_is_room(
    connection: Connection, topology: Topology, start: Start
) -> None:
    """The partition that is close to its limit refuses at once, the others do not; when it has room it goes on."""
    replica = await start()
    closed = subjects.partition_of("t.r", topology.partitions)
    other = next(name for name in "abcdef" if subjects.partition_of(f"t.{name}", topology.partitions) != closed)
    await fill(connection, closed, 49_000)
    await submit(connection, request("r", n=2))
    await submit(connection, request(other))
    await settled(connection)
    assert [(end.key, end.fault.code) for end in await ends(connection, topology, 2)] == [("t.r", "busy")] * 2
    assert [ticket.request for ticket in await tickets(connection, 1)] == [other]
    assert _closed_partitions(replica.context.telemetry.registry) == 1
    await call(connection, f"STREAM.PURGE.{subjects.results_stream(closed)}")
    await asyncio.sleep(1)

    async def through() -> bool:
        return await stored(connection, subjects.TICKETS) > 0

    await submit(connection, request("r"))
    await until(through)


def _closed_partitions(registry: CollectorRegistry) -> float | None:
    return registry.get_sample_value("headrace_closed_partitions", {"stage": "preprocess"})
