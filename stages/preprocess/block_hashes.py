"""The names that vLLM's prefix cache gives to a prompt's blocks: by them a scheduler knows where a prompt is cached."""

from collections.abc import Sequence
from hashlib import sha256

import cbor2


def block_hashes(ids: Sequence[int], block_size: int, root: bytes, cache_salt: str = "") -> bytes:
    """8 bytes for each full block of `block_size` ids, as in a ticket; nothing for a block size of 0.

    A block's hash covers all that stands before it: sha256 of the canonical CBOR of (the hash before, ids, extra),
    `root` before the first. Engines tell of blocks by the low 64 bits, here as little-endian u64. The same as in vLLM
    (`v1/core/kv_cache_utils.py`, with `prefix_caching_hash_algo='sha256_cbor'`). Linear in the length of the prompt:
    `python -m load.hashing` has the figures.
    """
    if block_size <= 0:
        return b""
    extra = (("cache_salt", cache_salt),) if cache_salt else None
    parent, low = root, list[bytes]()
    ids = tuple(ids)
    for end in range(block_size, len(ids) + 1, block_size):
        block = (parent, ids[end - block_size : end], extra)
        parent = sha256(cbor2.dumps(block, canonical=True)).digest()
        low.append(parent[:-9:-1])  # the digest is a big-endian number: its last 8 bytes, the other way round
        extra = None  # the salt is in the first block; the others have it through their parent
    return b"".join(low)
