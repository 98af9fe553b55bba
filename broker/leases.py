"""Which partitions this replica owns: even shares among all replicas, kept in the bucket `hr_partitions`.

Every replica writes its presence and what it holds once a second, each time as a compare-and-set, and looks at the
whole bucket more often. All come to the same shares by the same pure function. A partition changes hands when its
holder frees it after finishing with it, or when its entry did not change for three seconds on the observer's clock.
"""

import asyncio
import contextlib

import structlog

from broker.connection import BrokerError, Connection
from broker.holding import Callback, Holding
from broker.lease_bucket import Entry, LeaseBucket, Picture, partition_key
from broker.presence import Presence
from broker.shares import Sightings, shares
from broker.standstill import StandstillWatch
from schemas.control import Lease

log = structlog.get_logger()

TERM_S = 3.0
FREE_PATIENCE_S = 2.0


class Leases:
    """Holds this replica's share of `partitions`; `owner_id` ([A-Za-z0-9_-]) is unique to the process.

    For each partition `on_gained` is awaited, then, once it has to go, `on_lost`; it is free for others when that
    returned. Calls for one partition never overlap. An `on_gained` that raises counts as not gained: the partition
    is freed and left alone for one term. While the broker is away nothing is gained or lost. `term_s`, the same for
    all replicas, is how long an entry may stay unchanged: it is renewed three times as often.
    """

    def __init__(
        self,
        connection: Connection,
        partitions: int,
        owner_id: str,
        *,
        on_gained: Callback,
        on_lost: Callback,
        term_s: float = TERM_S,
    ) -> None:
        self._connection = connection
        self._bucket = LeaseBucket(connection)
        self._partitions = partitions
        self._owner = owner_id
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._term_s = term_s
        self._beat_s = term_s / 3
        self._holdings: dict[int, Holding] = {}
        self._not_before: dict[int, float] = {}
        self._members: set[str] = set()
        self._sightings = Sightings(self._beat_s)
        self._reconnects = connection.reconnects
        self._presence = Presence(self._bucket, owner_id)
        self._beats = 0
        self._beat_at = 0.0
        self._standstill = StandstillWatch(self._beat_s, self._on_standstill)
        self._stopping = False
        self._wake = asyncio.Event()

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that are ours: from the call of `on_gained` to the call of `on_lost`."""
        return frozenset(p for p, holding in self._holdings.items() if not holding.leaving)

    async def start(self) -> None:
        """Joins the others. Returns at once; partitions come through `on_gained`."""
        self._standstill.start()
        self._watch = await self._bucket.watch(self._on_write)
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Awaits `on_lost` for all partitions and frees each as it is done, so that others take over at once."""
        self._stopping = True
        self._wake.set()
        for holding in self._holdings.values():
            holding.leave()
        while running := [each.task for each in self._holdings.values() if not each.left]:
            await asyncio.wait(running)
        # A broker that is away is no reason to wait: the leases expire by themselves.
        await asyncio.wait([self._loop], timeout=FREE_PATIENCE_S)
        await self.abandon()

    async def abandon(self) -> None:
        """Ends at once, without a word to anybody: what is held expires."""
        self._standstill.stop()
        tasks = [self._loop, *(holding.task for holding in self._holdings.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._holdings.clear()
        await self._watch.close()

    async def _run(self) -> None:
        """All reading and writing of the bucket happens here, one thing after the other."""
        while not self._stopping or self._holdings or not self._presence.over:
            self._wake.clear()
            try:
                await self._turn()
            except BrokerError as error:
                log.debug("lease.unavailable", owner=self._owner, error=str(error))
                self._sightings.forget()
            except Exception:
                log.exception("lease.turn_failed", owner=self._owner)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._beat_s / 4):
                    await self._wake.wait()

    async def _turn(self) -> None:
        self._standstill.look()
        if self._stopping:
            await self._presence.end()
        if _now() - self._beat_at >= self._beat_s:
            await self._beat()
        await self._free_what_is_left()
        picture = self._observe(await self._bucket.entries())
        self._adopt(picture)
        await self._remove_the_gone(picture)
        await self._balance(picture)

    async def _beat(self) -> None:
        """Renews presence and leases, all at once: a write that fails holds up none of the others."""
        now = _now()
        self._beats += 1
        held = [each for each in self._holdings.values() if each.revision is not None and not each.left]
        done = await asyncio.gather(self._presence.show(self._beats), *(self._renew(each, now) for each in held))
        if all(done):
            self._beat_at = now
        else:
            self._sightings.forget()  # others may fare likewise

    async def _renew(self, holding: Holding, now: float) -> bool:
        """Whether the broker answered. A refusal is explained by the entries that are read next."""
        lease = Lease(self._owner, self._beats, holding.partition)
        try:
            revision = await self._bucket.put(partition_key(holding.partition), lease, holding.revision or 0)
        except BrokerError:
            return False
        if revision is not None:
            holding.renewed(revision, now)
        return True

    async def _free_what_is_left(self) -> None:
        for partition, holding in list(self._holdings.items()):
            if not holding.left:
                continue
            if holding.revision is not None and not await self._free(partition, holding.revision):
                continue  # what is read next says whether it is still ours
            if holding.failed:
                self._not_before[partition] = _now() + self._term_s
            del self._holdings[partition]

    async def _free(self, partition: int, revision: int) -> bool:
        return await self._bucket.put(partition_key(partition), Lease("", 0, partition), revision) is not None

    def _observe(self, entries: dict[str, Entry]) -> Picture:
        if self._connection.reconnects != self._reconnects:
            self._reconnects = self._connection.reconnects
            self._sightings.forget()  # all were cut off: nobody is judged for a whole term
        self._sightings.observe({key: entry.revision for key, entry in entries.items()}, _now())
        unchanged = (key for key in entries if self._sightings.unchanged_for(key) >= self._term_s)
        return Picture(entries, frozenset(unchanged))

    def _adopt(self, picture: Picture) -> None:
        """Takes from the bucket what became of our own writes, and finds leases that are no longer ours.

        An entry older than the one we know is the answer of a server that lags: it says nothing.
        """
        self._presence.adopt(picture)
        for partition, holding in self._holdings.items():
            entry = picture.of_partition(partition)
            if holding.revision is None or (entry and entry.revision <= holding.revision):
                continue
            if entry is None or entry.lease.owner == self._owner:
                holding.revision = entry.revision if entry else 0
            else:
                log.warning("lease.lost", partition=partition, owner=self._owner, to=entry.lease.owner)
                holding.lose()

    async def _balance(self, picture: Picture) -> None:
        """Gives up what is above our share, takes what belongs to it and is free."""
        self._members = picture.present() - {self._owner}
        if not self._stopping:
            self._members.add(self._owner)
        holders = picture.holders()
        share = shares(self._partitions, self._members, holders).get(self._owner, frozenset[int]())
        for partition, holding in self._holdings.items():
            if partition not in share and not holding.leaving:
                log.debug("lease.handed_over", partition=partition, owner=self._owner)
                holding.leave()
        for partition in sorted(share.difference(self._holdings)):
            if holders.get(partition, self._owner) == self._owner:
                await self._take(partition, picture.of_partition(partition))
        await self._free_what_expired(picture, share)

    async def _free_what_expired(self, picture: Picture, share: frozenset[int]) -> None:
        """For those whose share it is: a replica that has just come would have to watch the lease for a whole term."""
        for key in picture.expired:
            entry = picture.entries[key]
            others = entry.lease.owner not in ("", self._owner) and entry.lease.partition not in share
            if others and entry.lease.partition >= 0:
                await self._free(entry.lease.partition, entry.revision)

    async def _take(self, partition: int, entry: Entry | None) -> None:
        now = _now()
        if now < self._not_before.get(partition, 0.0):
            return
        lease = Lease(self._owner, self._beats, partition)
        revision = await self._bucket.put(partition_key(partition), lease, entry.revision if entry else 0)
        # An answer that came too late proves nothing any more.
        if revision is not None and _now() - now < self._term_s and not self._stopping:
            log.debug("lease.gained", partition=partition, owner=self._owner)
            holding = self._holdings[partition] = Holding(partition, revision, now)
            holding.begin(self._on_gained, self._on_lost, self._wake.set)

    async def _remove_the_gone(self, picture: Picture) -> None:
        """The presence of replicas that died: newcomers would still share with them. One that is back shows itself."""
        for key in picture.expired:
            lease = picture.entries[key].lease
            if lease.partition < 0 and lease.owner != self._owner:
                await self._bucket.remove(key, picture.entries[key].revision)

    async def _on_write(self, lease: Lease) -> None:
        """Looks at once when a partition came free or a replica came; the rest can wait for the next look."""
        if not lease.owner or (lease.partition < 0 and lease.owner not in self._members):
            self._wake.set()

    def _on_standstill(self, seconds: float) -> None:
        """Judges nobody after a pause of our own, and lets go of what others may have taken meanwhile."""
        log.warning("lease.stood_still", owner=self._owner, seconds=round(seconds, 1))
        self._sightings.forget()
        for holding in self._holdings.values():
            if _now() - holding.renewed_at >= self._term_s:
                holding.lose()


async def owners(connection: Connection) -> dict[int, str]:
    """Who holds each partition, as the bucket says; one that is free is missing. Raises `BrokerError`."""
    return Picture(await LeaseBucket(connection).entries(), frozenset()).holders()


def _now() -> float:
    return asyncio.get_running_loop().time()
