"""A replica's presence in the bucket of leases: shown as long as it takes part, taken back when it leaves."""

from broker.connection import BrokerError
from broker.lease_bucket import LeaseBucket, Picture, replica_key
from schemas.control import Lease


class Presence:
    """The entry that makes `owner` a member among whom the partitions are shared."""

    def __init__(self, bucket: LeaseBucket, owner: str) -> None:
        self._bucket = bucket
        self._owner = owner
        self._revision: int | None = 0  # as we know it, 0 where there is none; None once we said goodbye

    @property
    def over(self) -> bool:
        """Whether the others know that we leave."""
        return self._revision is None

    async def show(self, beat: int) -> bool:
        """Renews it. Whether the broker answered; a refusal is explained by the entries that are read next."""
        if self._revision is None:
            return True
        try:
            self._revision = (
                await self._bucket.put(replica_key(self._owner), Lease(self._owner, beat), self._revision) or 0
            )
        except BrokerError:
            return False
        return True

    async def end(self) -> None:
        """Our share is the others' from now on; what we still hold stays ours until it is freed."""
        if self._revision is not None:
            await self._bucket.remove(replica_key(self._owner), self._revision)
            self._revision = None

    def adopt(self, picture: Picture) -> None:
        """Takes from the bucket what became of our own writes."""
        if self._revision is not None:
            mine = picture.of_replica(self._owner)
            self._revision = mine.revision if mine else 0
