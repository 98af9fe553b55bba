"""The leases of partitions as one sees them who looks now and then: what is not renewed counts as free."""

import asyncio

from broker.connection import Connection
from broker.lease_bucket import LeaseBucket, Picture
from broker.leases import TERM_S
from broker.shares import Sightings


class LeaseView:
    """Judges by its own clock, as the owners do: an entry has expired when it did not change for a whole term.

    Who looks less often than every `GAP_S` seconds never calls one expired.
    """

    GAP_S = 2.5

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bucket = LeaseBucket(connection)
        self._sightings = Sightings(self.GAP_S)
        self._reconnects = connection.reconnects

    async def look(self) -> Picture:
        """The bucket as it is now. Raises `BrokerError`."""
        entries = await self._bucket.entries()
        if self._connection.reconnects != self._reconnects:
            self._reconnects = self._connection.reconnects
            self._sightings.forget()
        revisions = {key: entry.revision for key, entry in entries.items()}
        self._sightings.observe(revisions, asyncio.get_running_loop().time())
        gone = (key for key in entries if self._sightings.unchanged_for(key) >= TERM_S)
        return Picture(entries, frozenset(gone))
