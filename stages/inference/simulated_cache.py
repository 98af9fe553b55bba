"""The prefix cache of the simulated engine: which blocks of earlier sequences need no prefill."""

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from itertools import takewhile

ID_BYTES = array("I").itemsize


class BlockChain:
    """The full blocks of one sequence as it grows, each by a hash of all ids up to its end, and of the salt."""

    def __init__(self, block_size: int, ids: list[int], salt: str) -> None:
        self.hashes: list[int] = []
        self._size = block_size
        self._parent = hash(salt)
        whole = len(ids) // block_size * block_size
        data, step = array("I", ids[:whole]).tobytes(), block_size * ID_BYTES
        for begin in range(0, len(data), step):
            self._add(data[begin : begin + step])
        self._rest = array("I", ids[whole:])

    def push(self, token: int) -> None:
        """One more id."""
        self._rest.append(token)
        if len(self._rest) == self._size:
            self._add(self._rest.tobytes())
            self._rest = array("I")

    def _add(self, block: bytes) -> None:
        self._parent = hash((self._parent, block))
        self.hashes.append(self._parent)


class PrefixCache:
    """As many blocks as a KV cache of `tokens` has; those that were not used for longest go first."""

    def __init__(self, tokens: int, block_size: int) -> None:
        self._size = block_size
        self._capacity = tokens // block_size
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def chain(self, ids: list[int], salt: str) -> BlockChain:
        """The blocks of a sequence that begins with these ids."""
        return BlockChain(self._size, ids, salt)

    def cached_tokens(self, chain: BlockChain, length: int) -> int:
        """How many of the first `length` tokens need no prefill: whole blocks, and never the last token."""
        possible = chain.hashes[: max(length - 1, 0) // self._size]
        return self._size * sum(1 for _ in takewhile(self._blocks.__contains__, possible))

    def store(self, chain: BlockChain, computed: int) -> None:
        """The KV of the first `computed` tokens is there, and has just been used; of a chain the end goes first."""
        self._use(reversed(chain.hashes[: computed // self._size]))
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def _use(self, hashes: Iterable[int]) -> None:
        for one in hashes:
            self._blocks[one] = None
            self._blocks.move_to_end(one)
