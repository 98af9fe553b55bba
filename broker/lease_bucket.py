"""The bucket of leases: one consistent picture of it, and the compare-and-set that changes it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from broker import subjects
from broker.connection import Connection, Inbound, Subscription, Unavailable
from broker.direct_get import last_of_each
from broker.jetstream_api import ApiError, call, checked
from schemas.codec import WireError, decode, encode
from schemas.control import Lease

log = structlog.get_logger()

PUT_TIMEOUT_S = 1.0
MOST_WARNINGS = 100
UNKNOWN = "?"
NOBODY = Lease("", 0)

_STREAM = f"KV_{subjects.PARTITIONS_BUCKET}"
_PREFIX = f"$KV.{subjects.PARTITIONS_BUCKET}."
_WRONG_LAST_SEQUENCE = (10071, 10164)


@dataclass(frozen=True)
class Entry:
    """A key's newest value. A partition that is free has a lease without owner, so that freeing it is a plain write.

    A replica that is gone has one until its key is removed.
    """

    revision: int
    lease: Lease


@dataclass(frozen=True)
class Picture:
    """The bucket at one moment, as one observer sees it: `expired` are the keys that did not change for a term."""

    entries: dict[str, Entry]
    expired: frozenset[str]

    def of_partition(self, partition: int) -> Entry | None:
        return self.entries.get(partition_key(partition))

    def of_replica(self, owner: str) -> Entry | None:
        return self.entries.get(replica_key(owner))

    def present(self) -> set[str]:
        """The replicas that are there."""
        return {lease.owner for lease in self._alive() if lease.partition < 0 and lease.owner}

    def holders(self) -> dict[int, str]:
        """Who holds each partition; a free one is missing."""
        return {lease.partition: lease.owner for lease in self._alive() if lease.partition >= 0 and lease.owner}

    def _alive(self) -> list[Lease]:
        return [entry.lease for key, entry in self.entries.items() if key not in self.expired]


def partition_key(partition: int) -> str:
    return f"partition.{partition}"


def replica_key(owner: str) -> str:
    return f"replica.{owner}"


def _partition_in(key: str) -> int:
    """-1 where it is the key of something else."""
    kind, _, number = key.partition(".")
    return int(number) if kind == "partition" and number.isdecimal() else -1


class LeaseBucket:
    """Reads and writes `hr_partitions`. Raises `BrokerError`, at once while there is no connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._warned_of: set[bytes] = set()

    async def entries(self) -> dict[str, Entry]:
        """Everything in the bucket as of one moment, by key.

        A partition whose lease cannot be read has an owner that nobody is, and expires; other garbage is left out.
        """
        self._require_connection()
        entries: dict[str, Entry] = {}
        for stored in await last_of_each(self._connection, _STREAM, f"{_PREFIX}>"):
            key = stored.subject.removeprefix(_PREFIX)
            partition = _partition_in(key)
            lease = self._lease(stored.data)
            if partition >= 0 and (lease is None or lease.partition != partition):
                lease = Lease(UNKNOWN, 0, partition)
            if lease is not None:
                entries[key] = Entry(stored.sequence, lease)
        return entries

    async def put(self, key: str, lease: Lease, revision: int) -> int | None:
        """Writes if `revision` is still the key's newest (0: there is none). The new revision; None if it was not."""
        self._require_connection()
        headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        answer = await self._connection.request(_PREFIX + key, encode(lease), PUT_TIMEOUT_S, headers)
        try:
            return int(checked(key, answer.data)["seq"])
        except ApiError as error:
            if error.number in _WRONG_LAST_SEQUENCE:
                return None
            raise

    async def remove(self, key: str, revision: int) -> None:
        """Removes the key, unless it was written again after `revision`.

        A broker that is killed brings back the value before the one that was removed (nats-server 2.15.1), so the last
        two of a key have to be such that nobody is meant.
        """
        for _ in range(2):
            written = await self.put(key, NOBODY, revision)
            if written is None:
                return
            revision = written
        query = {"filter": _PREFIX + key, "seq": revision + 1}
        await call(self._connection, f"STREAM.PURGE.{_STREAM}", query, PUT_TIMEOUT_S)

    async def watch(self, on_write: Callable[[Lease], Awaitable[None]]) -> Subscription:
        """Calls `on_write` for every write as it is sent, refused ones too: a hint to look, not a truth."""

        async def on_message(message: Inbound) -> None:
            if lease := self._lease(message.data):
                await on_write(lease)

        return await self._connection.subscribe(f"{_PREFIX}>", on_message)

    def _require_connection(self) -> None:
        """Nothing may wait in the client's buffer until the broker is back: it would be stale then."""
        if not self._connection.connected:
            raise Unavailable("no connection to the broker")

    def _lease(self, data: bytes) -> Lease | None:
        try:
            return decode(Lease, data)
        except WireError as error:
            # It is read again with every look: each is told of once, as long as they are not many.
            if data not in self._warned_of and len(self._warned_of) < MOST_WARNINGS:
                self._warned_of.add(data)
                log.warning("lease.unreadable", error=str(error))
            return None
