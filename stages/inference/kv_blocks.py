"""Which blocks of prompts a KV cache holds, by their hashes, and what changed in it since somebody last asked.

No engine, no broker: an engine says what happened (`apply`), the worker takes it as news, each with a number.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Literal

import msgspec


class KvChange(msgspec.Struct, frozen=True, gc=False):
    """What an engine did to its cache. A hash is the low 64 bits of a block's; `cleared` has none."""

    kind: Literal["stored", "removed", "cleared"]
    hashes: list[int] = []


class KvNews(msgspec.Struct, frozen=True):
    """What changed since the news before `number`: `removed` went first, then `stored` came.

    `whole`: `stored` is all that there is, the oldest first.
    """

    number: int
    stored: list[int]
    removed: list[int]
    whole: bool = False


class KvBlocks:
    """The hashes in one cache, the oldest first; never more of them than the engine has blocks.

    A cache may hold a block twice, where requests with one prefix were computed side by side: its hash is gone with the
    last of them. `number` is that of the last news (0: there was none); `on_change` is called when there are some.
    """

    def __init__(self) -> None:
        self.number = 0
        self.on_change: Callable[[], None] = _nobody
        self._copies: dict[int, int] = {}
        self._stored: dict[int, None] = {}
        self._removed: dict[int, None] = {}
        self._whole = False

    def __len__(self) -> int:
        return len(self._copies)

    def __contains__(self, block_hash: object) -> bool:
        return block_hash in self._copies

    @property
    def has_news(self) -> bool:
        """Whether `take_news` would bring some."""
        return bool(self._whole or self._stored or self._removed)

    def apply(self, changes: Iterable[KvChange]) -> None:
        """Notes what an engine did, in order."""
        for change in changes:
            if change.kind == "stored":
                self.stored(change.hashes)
            elif change.kind == "removed":
                self.removed(change.hashes)
            else:
                self.cleared()
        if self.has_news:
            self.on_change()

    def stored(self, hashes: Iterable[int]) -> None:
        """These blocks are in the cache now, once more if they were."""
        for one in hashes:
            copies = self._copies.pop(one, 0)
            self._copies[one] = copies + 1  # at the end: the newest
            if not (copies or self._whole) and self._removed.pop(one, self) is self:
                self._stored[one] = None

    def removed(self, hashes: Iterable[int]) -> None:
        """One copy of each is gone. What is not known to be there may be named too."""
        for one in hashes:
            copies = self._copies.get(one, 0)
            if copies > 1:
                self._copies[one] = copies - 1
            elif copies:
                del self._copies[one]
                if not self._whole and self._stored.pop(one, self) is self:
                    self._removed[one] = None

    def cleared(self) -> None:
        """Nothing is in the cache any more, or nothing is known of it."""
        # Whoever was told of no block does not need to be told that there is none.
        self._whole = self._whole or bool(self._removed) or len(self._stored) < len(self._copies)
        self._copies.clear()
        self._stored.clear()
        self._removed.clear()

    def take_news(self, most: int = 1 << 20) -> KvNews | None:
        """The net change since the news before, None where there is none: what came and went meanwhile is not in it.

        Of more than `most` hashes the rest comes with the next news.
        """
        if not self.has_news:
            return None
        self.number += 1
        if self._whole:
            self._whole = False
            self._stored = dict.fromkeys(self._copies)
            return KvNews(self.number, _taken(self._stored, most), [], whole=True)
        removed = _taken(self._removed, most)
        return KvNews(self.number, _taken(self._stored, most - len(removed)), removed)

    def snapshot(self, most: int = 1 << 20) -> KvNews:
        """All that there is, or the newest `most` of it, as after news `number` (when no more are to be taken)."""
        skipped = max(len(self._copies) - most, 0)
        return KvNews(self.number, list(islice(self._copies, skipped, None)), [], whole=True)


def _nobody() -> None:
    """Nobody wants to know."""


def _taken(hashes: dict[int, None], most: int) -> list[int]:
    """Takes up to `most` of them out, the first ones."""
    taken = list(islice(hashes, most))
    if len(taken) == len(hashes):
        hashes.clear()
    else:
        for one in taken:
            del hashes[one]
    return taken
