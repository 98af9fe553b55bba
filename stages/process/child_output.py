"""Where the output of child processes goes: one log file each, or this process's stderr with a prefix."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

CHUNK = 64 * 1024
LAST_LINES = 20

Write = Callable[[str], None]
"""Takes one line, without its end."""

Sink = Callable[[str], Write]
"""What takes the lines of the child of that name."""


def to_folder(folder: Path) -> Sink:
    """A file `<child>.log` each; a restarted child goes on in its own."""
    folder.mkdir(parents=True, exist_ok=True)

    def open_for(name: str) -> Write:
        path = folder / f"{name}.log"

        def write(line: str) -> None:
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

        return write

    return open_for


def to_stream(stream: TextIO | None = None, *, prefixed: bool = True) -> Sink:
    """All in one stream. JSON lines name their stage themselves: those need no prefix."""
    target = stream or sys.stderr

    def open_for(name: str) -> Write:
        prefix = f"{name:<14} " if prefixed else ""

        def write(line: str) -> None:
            target.write(f"{prefix}{line}\n")
            target.flush()

        return write

    return open_for


class Output:
    """The output of one child: handed on line by line, the last lines kept for the error message."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def last_lines(self) -> list[str]:
        return list(self._last)

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Until the child closes it. Lines of any length."""
        rest = b""
        while chunk := await reader.read(CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(line)
        if rest:
            self._take(rest)

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._last.append(text)
        self._write(text)
