"""Where the output of child processes goes: one log file each, or this process's stderr with a prefix."""

import asyncio
import os
import sys
import weakref
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

    return lambda name: LogFile(folder / f"{name}.log")


class LogFile:
    """Appends lines to the file at `path`, each there for a reader at once; the first one makes the file.

    It stays open. Where somebody moved or removed it, the next line makes a new one: rotation by renaming works.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._close = lambda: None

    def __call__(self, line: str) -> None:
        """Raises `OSError` where it cannot be written."""
        file = self._file if self._file is not None and self._is_at_path(self._file) else self._open()
        file.write(f"{line}\n")

    def _is_at_path(self, file: TextIO) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(file.fileno()))
        except FileNotFoundError:
            return False

    def _open(self) -> TextIO:
        """Closed when another takes its place, or when nobody has this object any more."""
        self._close()
        self._file = file = self._path.open("a", encoding="utf-8", buffering=1)
        self._close = weakref.finalize(self, file.close)
        return file


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
