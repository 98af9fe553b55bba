"""The short way of a piece of text from the broker to an open stream: written while it is read, without a task switch.

The generators behind a stream see only what is more than text, and whatever has to wait for a slow reader.
"""

from collections.abc import Callable

from broker.chunk import Chunk


class Shortcut:
    """Open as long as an event stream has set `write`. `encode` gives the event of a chunk, empty for a special one."""

    __slots__ = ("_encode", "write")

    def __init__(self, encode: Callable[[Chunk], bytes]) -> None:
        self._encode = encode
        self.write: Callable[[bytes], bool] | None = None

    def take(self, chunk: Chunk) -> bool:
        """Whether it is on its way to the client. For `Headrace.stream`."""
        if self.write is None:
            return False
        event = self._encode(chunk)
        return bool(event) and self.write(event)
