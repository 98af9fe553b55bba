"""A worker's KV cache, block by block, as vLLM keeps it: what nobody uses any more stays until its room is needed."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count


class KvCache:
    """Blocks in use are counted, free ones that still hold something wait in order, the next to go first."""

    def __init__(self, blocks: int) -> None:
        self._capacity = blocks
        self._in_use: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._private = 0
        self._names = count(-1, -1)
        self.news: list[tuple[bool, int]] = []
        """What was stored (True) and dropped since somebody last looked."""

    @property
    def free(self) -> int:
        """Blocks that no running sequence needs."""
        return self._capacity - len(self._in_use) - self._private

    def allocate(self, hashes: Sequence[int], private: int) -> int | None:
        """Room for a prompt of these blocks and `private` more. Returns how many are there already; None: no room."""
        hits = 0
        for block in hashes:
            if block not in self._in_use and block not in self._idle:
                break
            hits += 1
        waking = sum(block in self._idle for block in hashes[:hits])
        if len(hashes) - hits + waking + private > self.free:
            return None
        for block in hashes[:hits]:
            self._idle.pop(block, None)
            self._in_use[block] = self._in_use.get(block, 0) + 1
        for block in hashes[hits:]:
            if block in self._idle:  # behind a gap: it is computed again
                del self._idle[block]
            else:
                self.news.append((True, block))
            self._in_use[block] = self._in_use.get(block, 0) + 1
        self._private += private
        self._evict()
        return hits

    def release(self, hashes: Sequence[int], private: int) -> None:
        """A sequence is over. Its blocks stay, the ends of prompts go first; `private` ones have names of their own."""
        self._private -= private
        for _ in range(private):
            self._idle[next(self._names)] = None
        for block in reversed(hashes):
            left = self._in_use[block] - 1
            if left:
                self._in_use[block] = left
            else:
                del self._in_use[block]
                self._idle[block] = None

    def _evict(self) -> None:
        while len(self._idle) > self.free:
            block, _ = self._idle.popitem(last=False)
            if block >= 0:
                self.news.append((False, block))
