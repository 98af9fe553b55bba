"""The ids of pieces of text that were encoded before, kept in bounded memory: long chats come again with every turn."""

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

ENTRY_BYTES = 280
"""What an entry takes beside its key and its ids: its places in the table and in the order."""

LARGEST_SHARE = 8
"""One segment fills at most this part of the cache: a huge text that comes once may not drive out everything."""


class SegmentCache:
    """Packed ids (u32 in the machine's order) by key; the least recently used go first. For any thread.

    Keys are plain strings, so that a collection of garbage has nothing to look at in here. `capacity` is in bytes, keys
    and bookkeeping counted. `hits` and `misses` count tokens.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self.hits = 0
        self.misses = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def get(self, wanted: Iterable[str]) -> dict[str, bytes]:
        """Those of `wanted` that are here."""
        found: dict[str, bytes] = {}
        kept = self._kept
        with self._lock:
            for key in wanted:
                ids = kept.get(key)
                if ids is not None:
                    kept.move_to_end(key)
                    found[key] = ids
        return found

    def keep(self, encoded: Mapping[str, bytes]) -> None:
        """Takes in what had to be encoded."""
        with self._lock:
            for key, ids in encoded.items():
                cost = _cost(key, ids)
                if key not in self._kept and cost <= self.capacity // LARGEST_SHARE:
                    self._kept[key] = ids
                    self.size += cost
            while self.size > self.capacity:
                self.size -= _cost(*self._kept.popitem(last=False))

    def count(self, hits: int, misses: int) -> None:
        """So many tokens more were found here, or had to be encoded."""
        with self._lock:
            self.hits += hits
            self.misses += misses

    def __len__(self) -> int:
        return len(self._kept)


def _cost(key: str, ids: bytes) -> int:
    return sys.getsizeof(key) + sys.getsizeof(ids) + ENTRY_BYTES
