"""Which blocks of prompts lie in whose KV cache, so that a ticket can go where most of its prompt is computed already.

A block is known by its hash, which covers all ids before it (vLLM's prefix caching): who has a block has the whole
prefix up to it, as long as caches drop blocks from their ends. So a map from hashes to workers is a radix tree whose
edges need not be stored, and a prompt is matched by looking for the ends of its matches among its own hashes.
"""

from collections.abc import Iterable
from itertools import islice

from schemas.kv_events import HASH_BYTES
from stages.schedule.policy import Matches


class Prefixes:
    """What is known of the caches of one model's workers, at most `blocks_per_worker` of each: the oldest go first."""

    def __init__(self, blocks_per_worker: int) -> None:
        self._limit = blocks_per_worker
        self._holders: dict[int, int] = {}
        self._blocks: dict[str, dict[int, None]] = {}
        self._bits: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def __len__(self) -> int:
        """How many different blocks are known."""
        return len(self._holders)

    def held_by(self, worker: str) -> int:
        """How many blocks are known of this worker."""
        return len(self._blocks.get(worker, ()))

    def stored(self, worker: str, hashes: Iterable[int]) -> None:
        """The worker has these blocks, from now on or still: they are its newest."""
        blocks, bit = self._known(worker), self._bits[worker]
        holders = self._holders
        for block in hashes:
            if block in blocks:
                del blocks[block]
            else:
                holders[block] = holders.get(block, 0) | bit
            blocks[block] = None
        if len(blocks) > self._limit:  # some at once: to look for the first of a dict costs what was deleted before it
            for block in list(islice(blocks, len(blocks) - self._limit + self._limit // 16)):
                self._forget(block, blocks, bit)

    def removed(self, worker: str, hashes: Iterable[int]) -> None:
        """The worker has dropped these blocks."""
        blocks = self._blocks.get(worker)
        if blocks is None:
            return
        bit = self._bits[worker]
        for block in hashes:
            if block in blocks:
                self._forget(block, blocks, bit)

    def cleared(self, worker: str) -> None:
        """The worker has nothing any more, or is gone."""
        blocks = self._blocks.pop(worker, None)
        if blocks is None:
            return
        bit = self._bits.pop(worker)
        del self._names[bit]
        for block in list(blocks):
            self._forget(block, blocks, bit)

    def match(self, hashes: bytes) -> Matches:
        """`hashes` are a ticket's: 8 bytes for each full block of its prompt."""
        found: dict[str, int] = {}
        blocks = memoryview(hashes).cast("Q")
        first = self._holders.get(blocks[0], 0) if blocks else 0
        if first:
            last = self._holders.get(blocks[-1], 0) & first
            self._note_ends(blocks, (0, first), (len(blocks) - 1, last), found)
            self._note(last, len(blocks), found)
        return found

    def _note_ends(
        self, blocks: memoryview, low: tuple[int, int], high: tuple[int, int], found: dict[str, int]
    ) -> None:
        """Finds who has the block `low` and not the block `high`, by halves: who has a block has those before it.

        Both are an index, and the bits of those that have that block.
        """
        while low[1] != high[1]:
            if high[0] - low[0] == 1:
                self._note(low[1] & ~high[1], high[0], found)
                return
            index = (low[0] + high[0]) // 2
            middle = index, self._holders.get(blocks[index], 0) & low[1]
            self._note_ends(blocks, low, middle, found)
            low = middle

    def _note(self, bits: int, depth: int, found: dict[str, int]) -> None:
        while bits:
            bit = bits & -bits
            found[self._names[bit]] = depth
            bits ^= bit

    def _known(self, worker: str) -> dict[int, None]:
        blocks = self._blocks.get(worker)
        if blocks is None:
            blocks = self._blocks[worker] = {}
            bit = 1
            while bit in self._names:
                bit <<= 1
            self._bits[worker] = bit
            self._names[bit] = worker
        return blocks

    def _forget(self, block: int, blocks: dict[int, None], bit: int) -> None:
        del blocks[block]
        left = self._holders[block] & ~bit
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]


def packed(hashes: Iterable[int]) -> bytes:
    """Hashes (u64) as tickets carry them."""
    return b"".join(block.to_bytes(HASH_BYTES, "little") for block in hashes)
