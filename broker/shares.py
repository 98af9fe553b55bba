"""Who should hold which partition, and who is still there: the pure half of the leases."""

from collections.abc import Collection, Mapping


def shares(partitions: int, members: Collection[str], holders: Mapping[int, str]) -> dict[str, frozenset[int]]:
    """The even share (± 1) of each member, moving as few partitions as that allows.

    `holders` says who holds a partition now; one held by nobody, or by no member, is given to whoever lacks most.
    Depends on nothing but its arguments, so that all replicas come to the same answer without asking each other.
    """
    held = {name: sorted(p for p in range(partitions) if holders.get(p) == name) for name in members}
    quotas = _quotas(partitions, held)
    kept = {name: held[name][: quotas[name]] for name in members}
    unplaced = set(range(partitions)).difference(*kept.values())
    for name in sorted(members):
        while len(kept[name]) < quotas[name]:
            partition = min(unplaced)
            unplaced.remove(partition)
            kept[name].append(partition)
    return {name: frozenset(kept[name]) for name in members}


def _quotas(partitions: int, held: Mapping[str, list[int]]) -> dict[str, int]:
    """How many each gets. What does not divide evenly goes to those that hold most: it need not move then."""
    if not held:
        return {}
    each, over = divmod(partitions, len(held))
    order = sorted(held, key=lambda name: (-len(held[name]), name))
    return {name: each + (rank < over) for rank, name in enumerate(order)}


class Sightings:
    """Since when each key of the bucket is unchanged, by the observer's own monotonic clock (seconds).

    No time stamp of anybody else counts: clocks of machines differ, and the broker's may jump. An observer that did
    not look for longer than `gap_s` has missed beats, and starts to count anew.
    """

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked_at = 0.0

    def observe(self, revisions: Mapping[str, int], now: float) -> None:
        """Takes in what the bucket holds at `now`."""
        if now - self._looked_at > self._gap_s:
            self.forget()
        before, self._looked_at = self._seen, now
        self._seen = {
            key: before[key] if key in before and before[key][0] == revision else (revision, now)
            for key, revision in revisions.items()
        }

    def forget(self) -> None:
        """After a pause, a reconnect, a failed beat of our own: judge nobody by what was seen before."""
        self._seen = {}

    def unchanged_for(self, key: str) -> float:
        """Seconds for which `key` has been seen without a change; 0 for a key never seen."""
        return self._looked_at - self._seen[key][1] if key in self._seen else 0.0
