"""Stop strings, found in text that comes in pieces."""

from collections.abc import Sequence
from typing import NamedTuple


class StopMatch(NamedTuple):
    """The stop string that ended an answer, and where in its whole text it stands (code points)."""

    stop: str
    start: int
    end: int


class _Found(NamedTuple):
    """A place in the buffer and the stop's rank in the list: the least one wins."""

    start: int
    rank: int


class StopMatcher:
    """Lets text through until a stop string appears: the earliest in the text, of several there the first in the list.

    What it decides depends on the text alone, not on how that was cut. It keeps back only what may still become a
    stop, so a match is settled once nothing that would win over it can appear any more.
    """

    __slots__ = ("_barred", "_held", "_include", "_inner", "_position", "_stops", "match")

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        self._stops = [stop for stop in stops if stop]
        self._include = include
        self._inner = frozenset("".join(stop[:-1] for stop in self._stops))
        self._held = ""
        self._position = 0
        self._barred = 0
        self.match: StopMatch | None = None

    @property
    def holding(self) -> bool:
        """Whether text is kept back."""
        return bool(self._held)

    @property
    def released(self) -> int:
        """Code points let through so far."""
        return self._position

    @property
    def pushed(self) -> int:
        """Code points that came in so far, up to a match."""
        return self._position + len(self._held)

    def push(self, text: str, *, may_match: bool = True) -> str:
        """What of the text so far is certain not to be part of a stop. Nothing after a match.

        `may_match=False`: no stop may end within this text (tokens below `min_tokens`).
        """
        if self.match is not None or not text:
            return ""
        buffer = self._held + text
        if not may_match:
            self._barred = self._position + len(buffer)
        found = self._first_match(buffer)
        rival = self._first_unfinished(buffer, found)
        if found is not None and rival is None:
            return self._settle(buffer, found)
        return self._release(buffer, rival if rival is not None else len(buffer), found)

    def flush(self) -> str:
        """What was kept back, since nothing follows."""
        if self.match is not None:
            return ""
        found = self._first_match(self._held)
        if found is not None:
            return self._settle(self._held, found)
        return self._release(self._held, len(self._held), None)

    def _first_match(self, buffer: str) -> _Found | None:
        best: _Found | None = None
        for rank, stop in enumerate(self._stops):
            start = buffer.find(stop, max(0, self._barred - self._position - len(stop) + 1))
            if start >= 0 and (best is None or start < best.start):
                best = _Found(start, rank)
        return best

    def _first_unfinished(self, buffer: str, found: _Found | None) -> int | None:
        """Where the end of `buffer` begins that is a proper prefix of a stop which would win over `found`."""
        if buffer[-1] not in self._inner:
            return None
        first: int | None = None
        for rank, stop in enumerate(self._stops):
            for start in range(max(0, len(buffer) - len(stop) + 1), len(buffer)):
                if found is not None and (start, rank) > found:
                    break
                if first is not None and start >= first:
                    break
                if stop.startswith(buffer[start:]):
                    first = start
                    break
        return first

    def _release(self, buffer: str, until: int, found: _Found | None) -> str:
        if found is not None:
            until = min(until, found.start)
        self._held = buffer[until:]
        self._position += until
        return buffer[:until]

    def _settle(self, buffer: str, found: _Found) -> str:
        stop = self._stops[found.rank]
        start, end = found.start, found.start + len(stop)
        self.match = StopMatch(stop, self._position + start, self._position + end)
        self._held = ""
        kept = end if self._include else start
        self._position += kept
        return buffer[:kept]
