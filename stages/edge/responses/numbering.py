"""Sequence numbers that are the same at every edge, however the answer came to it.

They count the answer itself: an event counts one, a delta as many as it has Unicode code points, and carries the
number of its last one. So whoever has everything up to number N gets exactly the rest, from within a delta too.
"""

from collections.abc import Iterable, Iterator

from stages.edge.responses.items import Json


class Numbering:
    """Gives events their numbers, and leaves out, or cuts, those up to `after` (-1: none)."""

    def __init__(self, after: int = -1) -> None:
        self._after = after
        self._next = 0

    @property
    def next(self) -> int:
        """The number after the last one given."""
        return self._next

    def numbered(self, events: Iterable[Json]) -> Iterator[Json]:
        """The events that are still to be told."""
        for event in events:
            length = len(event["delta"]) if "delta" in event else 1
            had = self._after + 1 - self._next
            self._next += length
            if had < length:
                yield {**_cut(event, had), "sequence_number": self._next - 1}


def _cut(event: Json, had: int) -> Json:
    """A delta without its first `had` code points, and without the logprobs of the tokens that end within them."""
    if had <= 0:
        return event
    delta = event["delta"]
    cut = {**event, "delta": delta[had:]}
    if "logprobs" in event:
        cut["logprobs"] = _ending_after(event["logprobs"], len(delta[:had].encode()))
    return cut


def _ending_after(entries: list[Json], length: int) -> list[Json]:
    """The entries whose bytes reach beyond the first `length` ones."""
    end = 0
    for index, entry in enumerate(entries):
        end += len(entry["bytes"])
        if end > length:
            return entries[index:]
    return []
