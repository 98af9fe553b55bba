"""A memory of bounded size: the oldest entries are forgotten."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last `limit` keys and what was said of each."""

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[K, V] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """What was said of `key` last."""
        return self._entries.get(key)

    def items(self) -> list[tuple[K, V]]:
        """Everything, the oldest first."""
        return list(self._entries.items())

    def put(self, key: K, value: V) -> None:
        """Remembers `key` as the newest."""
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self._limit:
            del self._entries[next(iter(self._entries))]

    def discard(self, key: K) -> None:
        """Forgets `key`."""
        self._entries.pop(key, None)
