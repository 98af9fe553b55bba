"""Leases among replicas on a real broker: even shares, handing over, deaths, pauses, a broker that goes away."""

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from broker.connection import BrokerOptions, Connection, Inbound, Unavailable
from broker.lease_bucket import Entry, LeaseBucket
from broker.leases import TERM_S, Leases, owners
from broker.server import EmbeddedServer
from broker.topology import Topology

PARTITIONS = 8
QUICK_TERM_S = 1.5
PATIENCE_S = 20.0
ROOT = Path(__file__).parents[3]


class Replicas:
    """Replicas in this process, each with a connection of its own, and a record of who holds what."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.leases: dict[str, Leases] = {}
        self.connections: list[Connection] = []
        self.holders: dict[int, set[str]] = {p: set() for p in range(PARTITIONS)}
        self.overlaps: list[tuple[int, set[str]]] = []
        self.events: list[tuple[str, str, int]] = []
        self.term_s = QUICK_TERM_S
        self.slow_loss_s = 0.0
        self.refuse_to_gain: set[str] = set()

    async def add(self, name: str, connection: Connection | None = None) -> Leases:
        opened = connection or await Connection.open(BrokerOptions(url=self.url, name=name))
        self.connections.append(opened)

        async def on_gained(partition: int) -> None:
            self.events.append((name, "gained", partition))
            if name in self.refuse_to_gain:
                raise ValueError("this replica cannot")
            self.holders[partition].add(name)
            if len(self.holders[partition]) > 1:
                self.overlaps.append((partition, set(self.holders[partition])))

        async def on_lost(partition: int) -> None:
            await asyncio.sleep(self.slow_loss_s)
            self.events.append((name, "lost", partition))
            self.holders[partition].remove(name)

        leases = Leases(opened, PARTITIONS, name, on_gained=on_gained, on_lost=on_lost, term_s=self.term_s)
        self.leases[name] = leases
        await leases.start()
        return leases

    async def kill(self, name: str) -> None:
        """As SIGKILL would: not a word to anybody."""
        await self.leases.pop(name).abandon()
        for held_by in self.holders.values():
            held_by.discard(name)

    async def stop(self, name: str) -> None:
        await self.leases.pop(name).stop()

    def sizes(self) -> list[int]:
        return sorted(len(each.owned) for each in self.leases.values())

    def all_held_once(self) -> bool:
        return all(len(held_by) == 1 for held_by in self.holders.values())

    async def settled(self, sizes: list[int]) -> float:
        """How long it took until the replicas hold so many partitions each, and each partition is held once."""
        began = time.monotonic()
        while self.sizes() != sorted(sizes) or not self.all_held_once():
            if time.monotonic() - began > PATIENCE_S:
                pytest.fail(f"{self.sizes()} instead of {sizes} after {PATIENCE_S} s; {self.events[-12:]}")
            await asyncio.sleep(0.005)
        return time.monotonic() - began


@pytest_asyncio.fixture
async def replicas(broker_url: str, topology: Topology) -> AsyncIterator[Replicas]:
    record = Replicas(broker_url)
    yield record
    for leases in record.leases.values():
        await leases.abandon()
    for connection in record.connections:
        await connection.close()


async def test_shares_follow_replicas_that_come_and_go(replicas: Replicas, connection: Connection):
    """Each replica that joins or stops is served, evenly, and no partition is ever held twice."""
    await replicas.add("a")
    took = [await replicas.settled([8])]
    for name, sizes in (("b", [4, 4]), ("c", [3, 3, 2])):
        await replicas.add(name)
        took.append(await replicas.settled(sizes))
    by_bucket = await owners(connection)
    assert by_bucket == {p: name for name, each in replicas.leases.items() for p in each.owned}
    await replicas.stop("a")
    took.append(await replicas.settled([4, 4]))
    await replicas.stop("b")
    took.append(await replicas.settled([8]))
    print("settled after (s):", [round(each, 3) for each in took])
    await replicas.stop("c")
    assert await owners(connection) == {}
    assert replicas.overlaps == []


async def test_a_share_changes_hands_only_after_the_old_owner_has_finished(replicas: Replicas):
    """The joiner waits for `on_lost` to return, however long that takes: longer than a lease's term here."""
    await replicas.add("a")
    await replicas.settled([8])
    replicas.slow_loss_s = QUICK_TERM_S + 0.7
    joiner = await replicas.add("b")
    await asyncio.sleep(QUICK_TERM_S + 0.3)
    assert joiner.owned == frozenset()
    assert len(replicas.leases["a"].owned) == 4
    await replicas.settled([4, 4])
    replicas.slow_loss_s = 0
    assert replicas.overlaps == []


async def test_a_killed_replica_is_replaced_after_a_term(replicas: Replicas):
    """What a replica held that died without a word is taken over once it did not change for a term, not before."""
    replicas.term_s = TERM_S
    await replicas.add("a")
    await replicas.add("b")
    await replicas.settled([4, 4])
    await replicas.kill("a")
    took = await replicas.settled([8])  # it counts anew whenever it is held up itself
    print("replaced after (s):", round(took, 2))
    assert took > TERM_S - 1.2  # its last beat was up to a second before its death
    assert replicas.overlaps == []


async def test_a_killed_replica_s_successor_need_not_watch_for_a_whole_term(replicas: Replicas):
    """Started anew in the meantime, it gets its share when the others see the lease expire, not a term after it came.

    Otherwise a quick restart would make the partitions of a dead replica wait longer than none at all.
    """
    replicas.term_s = TERM_S
    for name in ("a", "b"):
        await replicas.add(name)
    await replicas.settled([4, 4])
    await replicas.kill("a")
    await asyncio.sleep(0.8 * TERM_S)
    await replicas.add("c")
    assert await replicas.settled([4, 4]) < TERM_S, "it cannot have judged by itself yet"
    assert replicas.overlaps == []


async def test_many_replicas_at_once(replicas: Replicas):
    """Replicas that start and stop all at the same time come to even shares, each partition held once."""
    await asyncio.gather(*(replicas.add(name) for name in "abcdef"))
    await replicas.settled([2, 2, 1, 1, 1, 1])
    await asyncio.gather(*(replicas.stop(name) for name in "ace"))
    await replicas.settled([3, 3, 2])
    for _ in range(6):
        name = random.choice(list(replicas.leases))
        await replicas.stop(name)
        await replicas.add(f"{name}x")
        await asyncio.sleep(random.random() * 0.05)
    await replicas.settled([3, 3, 2])
    assert replicas.overlaps == []


async def test_more_replicas_than_partitions(replicas: Replicas):
    """Replicas without a share wait, and get one when there is one."""
    for number in range(PARTITIONS + 2):
        await replicas.add(f"r{number}")
    await replicas.settled([0, 0] + [1] * PARTITIONS)
    await replicas.stop(next(name for name, each in replicas.leases.items() if each.owned))
    await replicas.settled([0] + [1] * PARTITIONS)


async def test_a_broker_that_goes_away_costs_nobody_a_partition(replicas: Replicas, server: EmbeddedServer):
    """While the broker is away, longer than a term, and for a term after it came back, nothing changes hands.

    The leases themselves survive it, so that a death during that time shows after it.
    """
    await replicas.add("a")
    await replicas.add("b")
    await replicas.settled([4, 4])
    before = list(replicas.events)
    await server.kill()
    await asyncio.sleep(QUICK_TERM_S + 0.5)
    await replicas.kill("b")
    await server.restart()
    back = time.monotonic()
    took = await replicas.settled([8])
    assert time.monotonic() - back > QUICK_TERM_S - 0.1
    print("taken over after the broker's return (s):", round(took, 2))
    assert [each for each in replicas.events[len(before) :] if each[:2] != ("a", "gained")] == []


async def test_a_quick_restart_of_the_broker_costs_nobody_a_partition(replicas: Replicas, server: EmbeddedServer):
    """A broker killed and started again at once: everybody keeps what it had, and a term begins anew for the dead."""
    for name in "abc":
        await replicas.add(name)
    await replicas.settled([3, 3, 2])
    await replicas.kill("c")
    await asyncio.sleep(0.6 * QUICK_TERM_S)
    before = list(replicas.events)
    await server.kill()
    await server.restart()
    back = time.monotonic()
    await replicas.settled([4, 4])
    assert time.monotonic() - back > QUICK_TERM_S - 0.1
    assert {event for _, event, _ in replicas.events[len(before) :]} == {"gained"}


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_who_is_gone_stays_gone_when_the_broker_dies(
    replicas: Replicas, server: EmbeddedServer, connection: Connection, how: str
):
    """A broker that is killed brings back what was removed from the bucket: nobody gives up anything for the dead."""
    bucket = LeaseBucket(connection)
    for name in "abc":
        await replicas.add(name)
    await replicas.settled([3, 3, 2])
    await eventually(bucket, lambda now: now["replica.c"].lease.beat > 2)
    await (replicas.kill("c") if how == "killed" else replicas.stop("c"))
    await replicas.settled([4, 4])
    await eventually(bucket, lambda now: "replica.c" not in now)
    before = list(replicas.events)
    await server.kill()
    await server.restart()
    await connection.wait_connected()
    then = {name: entry.lease.beat for name, entry in (await bucket.entries()).items()}
    await eventually(
        bucket, lambda now: all(now[f"replica.{name}"].lease.beat > then[f"replica.{name}"] for name in "ab")
    )
    await eventually(bucket, lambda now: "replica.c" not in now)
    assert replicas.events == before


async def eventually(bucket: LeaseBucket, true: Callable[[dict[str, Entry]], bool]) -> None:
    """Waits until that is so of what the bucket holds."""
    began = time.monotonic()
    while not true(await bucket.entries()):
        assert time.monotonic() - began < PATIENCE_S
        await asyncio.sleep(0.02)


async def test_a_replica_that_cannot_gain_leaves_the_partition_to_others(replicas: Replicas):
    """An error in `on_gained` frees the partition for a term; the replica tries again after it."""
    replicas.refuse_to_gain = {"a"}
    await replicas.add("a")
    await asyncio.sleep(1)
    assert sorted(p for _, _, p in replicas.events) == list(range(PARTITIONS))
    assert replicas.leases["a"].owned == frozenset()
    replicas.refuse_to_gain = set()
    await replicas.settled([8])
    assert ("a", "lost", 0) not in replicas.events


class LosesAnswers(Connection):
    """A connection that loses the broker's answer to every fourth write: stored, and the writer cannot know."""

    writes = 0

    async def request(
        self, subject: str, data: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Inbound:
        answer = await super().request(subject, data, timeout_s, headers)
        self.writes += subject.startswith("$KV.")
        if subject.startswith("$KV.") and self.writes % 4 == 0:
            raise Unavailable("the answer was lost")
        return answer


async def test_lost_answers_cost_no_partition(replicas: Replicas, broker_url: str):
    """A write of our own whose answer was lost is recognised as ours, not as another's."""
    losing = await LosesAnswers.open(BrokerOptions(url=broker_url))
    await replicas.add("a", losing)
    await replicas.settled([8])
    before = list(replicas.events)
    await asyncio.sleep(QUICK_TERM_S + 1)
    assert replicas.events == before
    assert losing.writes > 2 * PARTITIONS


Spawn = Callable[[str], Awaitable[asyncio.subprocess.Process]]


@pytest_asyncio.fixture
async def spawn(broker_url: str) -> AsyncIterator[Spawn]:
    started: list[asyncio.subprocess.Process] = []

    async def start(name: str) -> asyncio.subprocess.Process:
        script = str(Path(__file__).with_name("replica_process.py"))
        process = await asyncio.create_subprocess_exec(
            sys.executable, script, broker_url, str(PARTITIONS), name, str(QUICK_TERM_S),
            stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def _line(process: asyncio.subprocess.Process, within_s: float) -> tuple[str, int]:
    assert process.stdout is not None
    async with asyncio.timeout(within_s):
        while True:
            words = (await process.stdout.readline()).decode().split()
            if len(words) == 2:  # anything else is its log
                return words[0], int(words[1])


async def test_a_replica_that_stood_still_lets_go_first(replicas: Replicas, spawn: Spawn):
    """A replica stopped by SIGSTOP is replaced; on waking it lets go of all it held at once, then joins anew."""
    stopped = await spawn("sleeper")
    first = {await _line(stopped, 10) for _ in range(PARTITIONS)}
    assert first == {("gained", p) for p in range(PARTITIONS)}
    stopped.send_signal(signal.SIGSTOP)
    await replicas.add("awake")
    await replicas.settled([8])
    stopped.send_signal(signal.SIGCONT)
    woken = time.monotonic()
    assert {await _line(stopped, 10) for _ in range(PARTITIONS)} == {("lost", p) for p in range(PARTITIONS)}
    print("let go after waking (ms):", round(1e3 * (time.monotonic() - woken), 1))
    assert {(await _line(stopped, 10))[0] for _ in range(4)} == {"gained"}


async def test_a_replica_that_stood_still_unreplaced_joins_anew(spawn: Spawn, topology: Topology):
    """Nobody was there to take its partitions: it lets go all the same, for it cannot know, and gains them again."""
    stopped = await spawn("alone")
    for _ in range(PARTITIONS):
        assert (await _line(stopped, 10))[0] == "gained"
    stopped.send_signal(signal.SIGSTOP)
    await asyncio.sleep(QUICK_TERM_S + 0.5)
    stopped.send_signal(signal.SIGCONT)
    assert {(await _line(stopped, 10))[0] for _ in range(PARTITIONS)} == {"lost"}
    assert {await _line(stopped, 10) for _ in range(PARTITIONS)} == {("gained", p) for p in range(PARTITIONS)}
