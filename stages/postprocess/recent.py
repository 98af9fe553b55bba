"""A memory of bounded size: the oldest entries are forgotten, and those that are too old, if one asks for it."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last `limit` keys and what was said of each."""

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[K, tuple[float, V]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """What was said of `key` last."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None else None

    def items(self) -> list[tuple[K, V]]:
        """Everything, the oldest first."""
        return [(key, value) for key, (_, value) in self._entries.items()]

    def put(self, key: K, value: V, now: float = 0.0) -> None:
        """Remembers `key` as the newest."""
        self._entries.pop(key, None)
        self._entries[key] = now, value
        if len(self._entries) > self._limit:
            del self._entries[next(iter(self._entries))]

    def forget_before(self, time: float) -> None:
        """Forgets what was put before that moment, on the clock of `put`."""
        while self._entries:
            key, (put_at, _) = next(iter(self._entries.items()))
            if put_at >= time:
                return
            del self._entries[key]

    def discard(self, key: K) -> None:
        """Forgets `key`."""
        self._entries.pop(key, None)
