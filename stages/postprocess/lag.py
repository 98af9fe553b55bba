"""How far the owner of a partition is behind its journal: for metrics, without a word to the broker."""

import time
from collections.abc import Callable, Sequence

from broker.journal import JournalRecord


class Lag:
    """Told by the reader as it works; read by any thread. `clock` gives Unix seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._known_to = 0
        self._done_to = 0
        self._oldest_at = 0.0

    @property
    def messages(self) -> int:
        """Stored in the journal and not dealt with, as far as its newest delivery told."""
        return max(self._known_to - self._done_to, 0)

    @property
    def seconds(self) -> float:
        """For how long the oldest message in hand has been stored; 0: none is in hand."""
        oldest_at = self._oldest_at  # once: another thread may be writing it
        return max(self._clock() - oldest_at, 0.0) if oldest_at else 0.0

    def came(self, records: Sequence[JournalRecord]) -> None:
        """The next messages, with how many stand behind them."""
        self._known_to = records[-1].sequence + records[-1].pending
        self._done_to = records[0].sequence - 1

    def began(self, first: JournalRecord) -> None:
        """These are being worked on, from `first` on."""
        self._oldest_at = first.stored_at

    def done(self, last: JournalRecord) -> None:
        """All up to `last` stand in results."""
        self._done_to = last.sequence
        self._oldest_at = 0.0
