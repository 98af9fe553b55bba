"""What a scheduler knows of the KV caches of one model's workers: from their own events, or from what it sent them."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from schemas.control import WorkerStatus
from schemas.kv_events import HASH_BYTES, KvEvents
from stages.schedule.expected_blocks import ExpectedBlocks
from stages.schedule.policy import Matches
from stages.schedule.prefixes import Prefixes

BLOCKS_PER_WORKER = 65_536
"""At most so many blocks of a worker are known: 1 M tokens in blocks of 16.

A block costs about 140 bytes for each worker that has it (210 where it has no events, 75 where others have it too): 64
workers with 16,384 different ones take 146 MB, and four times as much is the most that they can take.
"""

LATE_S = 1.0
"""A message that a heartbeat speaks of and that has not come by then is lost."""

ASK_AGAIN_S = 1.0


class _Sent:
    """The blocks that a worker without events was sent, the oldest first, as many as its cache has `room` for."""

    def __init__(self) -> None:
        self.room = 0
        self._blocks: dict[int, None] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._blocks

    def put(self, blocks: Iterable[int]) -> list[int]:
        """These are the newest now. Returns those that had to go."""
        for block in blocks:
            self._blocks.pop(block, None)
            self._blocks[block] = None
        dropped = list(islice(self._blocks, max(len(self._blocks) - self.room, 0)))
        for block in dropped:
            del self._blocks[block]
        return dropped


@dataclass(slots=True)
class _Cache:
    """One worker's. `number` is that of the last message applied, `lacks` one that a heartbeat named, since when.

    `awaited`: messages are missing, and only a snapshot says what is there now. `events`: the worker has some.
    """

    events: bool
    awaited: bool = False
    number: int = 0
    lacks: int = 0
    lacks_since: float = 0.0
    asked_at: float = float("-inf")
    sent: _Sent = field(default_factory=_Sent)


class CachedBlocks:
    """Follows the events of workers that a heartbeat has named; of others nothing is kept that could be left over.

    Where a worker has no events, what it was sent counts as cached, the least recently used first to go. Whoever calls
    asks a worker for a snapshot when told to (`heard`, `beat`), which is at most once in `ASK_AGAIN_S`; until it comes
    the view stays as it was. `now` is the event loop's clock (s). `block_tokens` 0: nothing is known or matched.
    """

    def __init__(self, block_tokens: int = 0) -> None:
        self._block_tokens = block_tokens
        self._caches: dict[str, _Cache] = {}
        self._prefixes = Prefixes(BLOCKS_PER_WORKER)
        self._expected = ExpectedBlocks()

    def __len__(self) -> int:
        """How many different blocks are known."""
        return len(self._prefixes)

    @property
    def block_tokens(self) -> int:
        """Tokens of one block."""
        return self._block_tokens

    def use_blocks_of(self, tokens: int) -> None:
        """The model's card has come. With another size all hashes are others: the next heartbeats begin anew."""
        if tokens != self._block_tokens:
            self._block_tokens = tokens
            self._caches.clear()
            self._prefixes = Prefixes(BLOCKS_PER_WORKER)
            self._expected = ExpectedBlocks()

    def beat(self, status: WorkerStatus, now: float) -> bool:
        """A heartbeat, of which `kv_number` counts. Returns whether to ask the worker for a snapshot now."""
        if not self._block_tokens:
            return False
        cache = self._caches.get(status.worker)
        events = status.kv_number >= 0
        if cache is None or cache.events != events:
            self.gone(status.worker)
            cache = self._caches[status.worker] = _Cache(events, awaited=status.kv_number > 0)
        cache.sent.room = min(status.kv_capacity // self._block_tokens, BLOCKS_PER_WORKER)
        if events and not cache.awaited:
            cache.awaited = _is_late(cache, status.kv_number, now)
        return _asks(cache, now)

    def heard(self, events: KvEvents, now: float) -> bool:
        """Events, or a snapshot. Returns whether to ask the worker for a snapshot now.

        What comes while one is awaited is covered by it: events and the reply come in the order in which they were
        sent. A `whole` message with a lower number than known is that of a worker that began anew.
        """
        cache = self._caches.get(events.worker)
        if cache is None or not cache.events:
            return False
        if events.whole:
            self._prefixes.cleared(events.worker)
            self._expected.gone(events.worker)
            cache.awaited, cache.lacks = False, 0
        elif cache.awaited or events.number <= cache.number:
            return _asks(cache, now)
        elif events.number > cache.number + 1:
            cache.awaited = True
            return _asks(cache, now)
        removed, stored = array("Q", events.removed), array("Q", events.stored)
        self._prefixes.removed(events.worker, removed)
        self._prefixes.stored(events.worker, stored)
        self._expected.come(events.worker, removed)
        self._expected.come(events.worker, stored)
        cache.number = events.number
        return False

    def sent(self, worker: str, hashes: bytes, now: float) -> None:
        """A ticket with these block hashes was granted to the worker.

        The last block is the oldest: caches drop prompts from their ends. A worker that has events will tell what it
        stores: until then it is expected. What it has is renewed, once its oldest blocks are about to be forgotten.
        """
        cache = self._caches.get(worker)
        if cache is None or len(hashes) % HASH_BYTES:
            return
        blocks = array("Q", hashes)
        if cache.events:
            known = self._prefixes.match(hashes).get(worker, 0)
            self._expected.sent(worker, blocks[known:], now)
            self._prefixes.stored(worker, reversed(blocks[known:]))
            if self._prefixes.held_by(worker) > BLOCKS_PER_WORKER // 2:
                self._prefixes.stored(worker, reversed(blocks[:known]))
            return
        dropped = cache.sent.put(reversed(blocks))
        self._prefixes.stored(worker, (block for block in reversed(blocks) if block in cache.sent))
        self._prefixes.removed(worker, dropped)

    def gone(self, worker: str) -> None:
        """The worker has fallen silent: nothing is known of it any more."""
        self._caches.pop(worker, None)
        self._prefixes.cleared(worker)
        self._expected.gone(worker)

    def match(self, hashes: bytes, now: float) -> Matches:
        """How many blocks at the beginning of a prompt which worker has, or will in a moment. `hashes`: a ticket's."""
        for worker, blocks in self._expected.given_up(now):
            self._prefixes.removed(worker, blocks)
        return {} if len(hashes) % HASH_BYTES else self._prefixes.match(hashes)

    def held_by(self, worker: str) -> int:
        """How many blocks are known of this worker."""
        return self._prefixes.held_by(worker)

    def known(self, worker: str) -> bool:
        """Whether anything can be said of its cache: not before the first snapshot of one that was there before us."""
        cache = self._caches.get(worker)
        return cache is not None and (not cache.awaited or cache.number > 0)


def _is_late(cache: _Cache, kv_number: int, now: float) -> bool:
    """Whether a message is lost, by what heartbeats say of the last one."""
    if cache.number < cache.lacks:
        return now - cache.lacks_since >= LATE_S
    cache.lacks, cache.lacks_since = kv_number, now
    return False


def _asks(cache: _Cache, now: float) -> bool:
    """Whether a snapshot is to be asked for now; counted as asked for."""
    if not cache.awaited or now - cache.asked_at < ASK_AGAIN_S:
        return False
    cache.asked_at = now
    return True
