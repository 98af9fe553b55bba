"""Where a chaos run writes: a folder that was named stays, another one only while there is something to read in it."""

import shutil
import tempfile
from pathlib import Path
from typing import Self

PLACES = {"logs": "logs", "the server's log": "nats/nats-server.log", "the server's errors": "nats/nats-server.stderr"}


class ChaosFolder:
    """`path`, made at once. A temporary one is removed behind the `with` block, unless `keep` found text."""

    def __init__(self, named: Path | None) -> None:
        self.path = named or Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
        self.path.mkdir(parents=True, exist_ok=True)
        self._stays = named is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stays:
            shutil.rmtree(self.path, ignore_errors=True)

    def keep(self) -> str:
        """Where to read what happened, "" where nobody wrote anything."""
        for name, place in PLACES.items():
            if _has_text(self.path / place):
                self._stays = True
                return f"{name}: {self.path / place}"
        return ""


def _has_text(path: Path) -> bool:
    """Of a file, or of any file in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return any(file.is_file() and file.stat().st_size > 0 for file in files)
