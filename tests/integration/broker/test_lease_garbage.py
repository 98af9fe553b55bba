"""What is no lease in the bucket of leases: told of once, and no partition stays without an owner for it."""

import asyncio

import structlog

from broker.connection import Connection
from broker.leases import Leases
from broker.publisher import Publisher
from broker.topology import Topology
from schemas.codec import encode
from schemas.control import Lease

GARBAGE = {
    "partition.0": b"garbage",
    "partition.1": encode(Lease("somebody", 1, 0)),  # of another partition than its key says
    "replica.x": b"more garbage",
    "partition.x": b"no partition at all",
}


async def test_garbage_expires_and_is_told_of_once(connection: Connection, topology: Topology) -> None:
    """Every partition gets an owner, as after the death of one. The bucket is read often, the warning comes once."""
    for key, value in GARBAGE.items():
        await Publisher(connection).publish(f"$KV.hr_partitions.{key}", value)
    owned = set[int]()
    complete = asyncio.Event()

    async def on_gained(partition: int) -> None:
        owned.add(partition)
        if owned == set(range(topology.partitions)):
            complete.set()

    async def on_lost(partition: int) -> None:
        owned.discard(partition)

    with structlog.testing.capture_logs() as lines:
        leases = Leases(connection, topology.partitions, "a", on_gained=on_gained, on_lost=on_lost, term_s=0.5)
        await leases.start()
        async with asyncio.timeout(30):
            await complete.wait()
        await asyncio.sleep(0.5)
        await leases.stop()
    told = [line for line in lines if line["event"] == "lease.unreadable"]
    assert len(told) == 3, "one for each that no lease can be read from"


async def test_a_deleted_lease_is_taken(connection: Connection, topology: Topology) -> None:
    """What an operator's `kv del` leaves behind, a marker without a value, is no lease either: it expires, too."""
    marker = {"KV-Operation": "DEL"}
    await connection.publish("$KV.hr_partitions.partition.0", b"", headers=marker)
    gained = asyncio.Event()

    async def on_gained(partition: int) -> None:
        if partition == 0:
            gained.set()

    async def on_lost(_: int) -> None:
        """Nothing to do."""

    leases = Leases(connection, topology.partitions, "a", on_gained=on_gained, on_lost=on_lost, term_s=0.5)
    await leases.start()
    async with asyncio.timeout(30):
        await gained.wait()
    await leases.stop()
