"""The names that vLLM's prefix cache gives to a prompt's blocks: by them a scheduler knows where a prompt is cached."""

import threading
from array import array
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import cbor2

RUN = 8
"""So many blocks are remembered together: one by one, prompts that share nothing would take a third longer."""


class Run(NamedTuple):
    """What stands in some blocks, the first with this salt, behind the block with hash `parent`; and their hashes."""

    parent: bytes
    salt: str
    ids: bytes
    last: bytes
    low: bytes


class Memo:
    """The runs that came more than once of late; of any it holds at most `runs`. For any number of threads.

    Of the first time only a number stays: most runs come once, and to keep those would cost more than it saves. Two
    generations: what comes is young, and once half of all are young, what is old is forgotten. A run of 16-token blocks
    takes 1.4 kB, one of 32-token blocks 2.4: no more than 10 MB in all.
    """

    def __init__(self, runs: int = 4096) -> None:
        self._half = runs // 2
        self._young: dict[int, Run | None] = {}
        self._old: dict[int, Run | None] = {}
        self._turning = threading.Lock()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def run(self, parent: bytes, ids: tuple[int, ...], block_size: int, salt: str) -> tuple[bytes, bytes]:
        """The hash of the last of these full blocks, and what a ticket says of all of them."""
        number = hash((parent, ids, salt, block_size))
        young, old = self._young, self._old
        known = young.get(number) or old.get(number)
        if known is None:
            last, low = hashed_blocks(parent, ids, block_size, salt)
            again = number in young or number in old
            self._keep(number, Run(parent, salt, array("q", ids).tobytes(), last, low) if again else None)
            return last, low
        if (known.parent, known.salt, known.ids) != (parent, salt, array("q", ids).tobytes()):
            return hashed_blocks(parent, ids, block_size, salt)  # another one with the same number
        if number not in young:
            self._keep(number, known)
        return known.last, known.low

    def _keep(self, number: int, run: Run | None) -> None:
        self._young[number] = run
        if len(self._young) >= self._half:
            with self._turning:
                if len(self._young) >= self._half:  # nobody else has turned it meanwhile
                    self._old, self._young = self._young, {}


SEEN = Memo()
"""Of this process: a system prompt, and the earlier turns of a chat, come again and again."""


def block_hashes(ids: Sequence[int], block_size: int, root: bytes, cache_salt: str = "", seen: Memo = SEEN) -> bytes:
    """8 bytes for each full block of `block_size` ids, as in a ticket; nothing for a block size of 0.

    A block's hash covers all that stands before it: sha256 of the canonical CBOR of (the hash before, ids, extra),
    `root` before the first. Engines tell of blocks by the low 64 bits, here as little-endian u64. The same as in vLLM
    (`v1/core/kv_cache_utils.py`, with `prefix_caching_hash_algo='sha256_cbor'`). Linear in the length of the prompt;
    what begins like prompts that were `seen` is looked up. `python -m load.hashing` has the figures.
    """
    if block_size <= 0:
        return b""
    parent, salt, low, ids = root, cache_salt, list[bytes](), tuple(ids)
    size = RUN * block_size
    for begin in range(0, len(ids) - block_size + 1, size):
        part = ids[begin : begin + size]
        if len(part) < size:  # the end of a prompt is its own
            low.append(hashed_blocks(parent, part, block_size, salt)[1])
            break
        parent, found = seen.run(parent, part, block_size, salt)
        low.append(found)
        salt = ""  # it is in the first block; the others have it through their parent
    return b"".join(low)


def hashed_blocks(parent: bytes, ids: tuple[int, ...], block_size: int, salt: str) -> tuple[bytes, bytes]:
    """The hash of the last full block of these ids, and what a ticket says of all of them."""
    extra = (("cache_salt", salt),) if salt else None
    low = list[bytes]()
    for end in range(block_size, len(ids) + 1, block_size):
        block = (parent, ids[end - block_size : end], extra)
        parent = sha256(cbor2.dumps(block, canonical=True)).digest()
        low.append(parent[:-9:-1])  # the digest is a big-endian number: its last 8 bytes, the other way round
        extra = None
    return parent, b"".join(low)
