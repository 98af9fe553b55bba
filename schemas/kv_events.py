"""Inference → schedule, on `hr.kv.<model>.<worker>`: which blocks of prompts a worker's KV cache holds."""

import msgspec

from schemas.names import Count, Id

HASH_BYTES = 8
"""A block's hash in messages: the low 64 bits of vLLM's, as a little-endian u64."""


class KvEvents(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """What changed in a cache since the message before `number` of this worker's process (the first one is 1).

    `removed` blocks went first, then `stored` ones came; both are packed hashes. `whole`: `stored` is all that there
    is, the oldest first, as after message `number`: a snapshot, or the first message after a cache was cleared.
    """

    worker: Id
    number: Count
    stored: bytes = b""
    removed: bytes = b""
    whole: bool = False

    def __post_init__(self) -> None:
        """Raises `ValueError`, which a reader sees as `WireError`."""
        if len(self.stored) % HASH_BYTES or len(self.removed) % HASH_BYTES:
            raise ValueError("stored or removed is no whole number of hashes")


class KvSnapshot(msgspec.Struct, frozen=True, tag_field="v", tag=1):
    """Schedule → inference, request on `hr.kvsnapshot.<worker>`: the reply is a `KvEvents` that is `whole`."""

    scheduler: str
