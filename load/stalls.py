"""How long streams are silent, as their reader sees it: in calm times, and while something is wrong.

A stream is one choice of an answer from its first token to its end. In a window the longest silence of each stream
counts that was in progress when the window opened, also one that the window's end cuts off.
"""

from dataclasses import dataclass

Name = tuple[str, int]
"""A request's id and the number of the choice."""


@dataclass
class _Stream:
    last: float
    attempt: int
    longest: float = 0.0
    resumed: bool = False


@dataclass(frozen=True)
class Silence:
    """The longest silence of one stream in a window, in seconds. `resumed`: it went on under another attempt."""

    seconds: float
    resumed: bool


class Streams:
    """The streams in progress. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._streams: dict[Name, _Stream] = {}
        self._watched: dict[Name, _Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def arrived(self, name: Name, now: float, attempt: int) -> None:
        """Something came for a stream; the first thing begins it."""
        stream = self._streams.get(name)
        if stream is None:
            self._streams[name] = _Stream(now, attempt)
            return
        stream.longest = max(stream.longest, now - stream.last)
        stream.last = now
        if attempt != stream.attempt:
            stream.resumed, stream.attempt = True, attempt

    def ended(self, name: Name) -> None:
        """It is not in progress any more; what it did in the open window counts."""
        self._streams.pop(name, None)

    def open_window(self) -> None:
        """Watches the streams in progress from now on."""
        for stream in self._streams.values():
            stream.longest, stream.resumed = 0.0, False
        self._watched = dict(self._streams)

    def close_window(self, now: float) -> dict[Name, Silence]:
        """By stream, the longest silence since the window was opened."""
        found: dict[Name, Silence] = {}
        for name, stream in self._watched.items():
            open_end = now - stream.last if name in self._streams else 0.0
            found[name] = Silence(max(stream.longest, open_end), stream.resumed)
        self._watched = {}
        return found
