"""Looking at leases and services without taking part."""

import asyncio

from broker.connection import Connection
from broker.lease_bucket import LeaseBucket, partition_key, replica_key
from broker.lease_view import LeaseView
from broker.leases import TERM_S
from broker.service import Service
from broker.service_ping import instances
from broker.topology import Topology
from schemas.control import Lease


async def test_a_lease_that_is_not_renewed_is_seen_as_free(connection: Connection, topology: Topology) -> None:
    """After a whole term, by one who looks all the time; who comes later has to watch it as long."""
    bucket, view = LeaseBucket(connection), LeaseView(connection)
    for key, partition in ((replica_key("dead"), -1), (partition_key(0), 0)):
        await bucket.put(key, Lease("dead", 1, partition), 0)
    alive = 0
    loop = asyncio.get_running_loop()
    until = loop.time() + TERM_S + 1
    seen: list[tuple[float, dict[int, str], set[str]]] = []
    began = loop.time()
    while loop.time() < until:
        alive = await bucket.put(partition_key(1), Lease("alive", alive, 1), alive) or alive
        picture = await view.look()
        seen.append((loop.time() - began, picture.holders(), picture.present()))
        await asyncio.sleep(0.5)
    for at, holders, present in seen:
        if at < TERM_S - 0.1:
            assert (holders, present) == ({0: "dead", 1: "alive"}, {"dead"})
    assert seen[-1][1:] == ({1: "alive"}, set())
    assert (await LeaseView(connection).look()).holders() == {0: "dead", 1: "alive"}


async def test_instances_of_a_service_are_counted(connection: Connection, other: Connection) -> None:
    """None where nobody is; each once, and only those of that name."""
    assert await instances(connection, "there", 0.2) == set()
    services = [
        Service(other, name=name, identity=identity, version="0.1.0", description="d")
        for name, identity in (("there", "a"), ("there", "b"), ("elsewhere", "c"))
    ]
    for service in services:
        await service.start()
    assert await instances(connection, "there", 0.3) == {"a", "b"}
    for service in services:
        await service.stop(0)
