"""The prefix cache of the simulated engine: which blocks of earlier sequences need no prefill, and which are in use."""

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Holding:
    """The blocks of the KV cache that one running sequence has: `shared` ones by their hashes, and its own."""

    shared: list[int] = field(default_factory=list[int])
    blocks: int = 0


class PrefixCache:
    """As many blocks as a KV cache of `tokens` has; those that were not used for longest go first.

    Blocks that sequences hold in common are in use once, those that are only cached are not. As in vLLM, two prompts
    that were computed at the same time have a copy each.
    """

    def __init__(self, tokens: int, block_size: int) -> None:
        self._size = block_size
        self._holders: dict[int, int] = {}
        self._own = 0
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

    @property
    def used(self) -> int:
        """Tokens of KV cache that are in use, in whole blocks."""
        return (len(self._holders) + self._own) * self._size

    def wanted(self, chain: BlockChain, length: int, cached: int) -> int:
        """Tokens that would be in use more with a sequence of this length, of which `cached` are here."""
        awake = sum(one in self._holders for one in chain.hashes[: cached // self._size])
        return (-(-length // self._size) - awake) * self._size

    def hold(self, holding: Holding, chain: BlockChain, cached: int, length: int) -> None:
        """A sequence begins to run, with the blocks of the first `cached` tokens, and own ones up to `length`."""
        self._share(holding, chain.hashes[: cached // self._size])
        self.grow(holding, length)

    def show(self, holding: Holding, chain: BlockChain, computed: int) -> None:
        """Its blocks are computed: others may hold them too from now on, except for copies of what is held already."""
        own = chain.hashes[len(holding.shared) : computed // self._size]
        fresh = [one for one in own if one not in self._holders]
        self._share(holding, fresh)
        self._own -= len(fresh)

    def grow(self, holding: Holding, length: int) -> None:
        """It may have so many tokens now."""
        blocks = max(-(-length // self._size), holding.blocks)
        self._own += blocks - max(holding.blocks, len(holding.shared))
        holding.blocks = blocks

    def let_go(self, holding: Holding) -> None:
        """It has ended."""
        self._own -= holding.blocks - len(holding.shared)
        for one in holding.shared:
            self._holders[one] -= 1
            if not self._holders[one]:
                del self._holders[one]

    def _share(self, holding: Holding, hashes: list[int]) -> None:
        for one in hashes:
            self._holders[one] = self._holders.get(one, 0) + 1
        holding.shared += hashes

    def _use(self, hashes: Iterable[int]) -> None:
        for one in hashes:
            self._blocks[one] = None
            self._blocks.move_to_end(one)
