"""The file of results: a JSON line for each run, appended as it ends, so that a comparison can be continued."""

import contextlib
import fcntl
import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load.reporting.results import lines

FORMAT = 1

Result = dict[str, Any]


@dataclass(frozen=True)
class Key:
    """Which run it was."""

    arm: str
    workload: str
    profile: str
    repeat: int

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> "Key":
        return cls(result["arm"], result["workload"], result["profile"], result["repeat"])


class ResultsFile:
    """`path` may not exist yet; then `append` makes it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """For a whole run: two runs with one file would both do the same. Raises `ValueError` where another has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"{self._path}: another run writes to it; wait for it, or name another file") from None
            yield

    def append(self, result: Result) -> None:
        """One more line. One that was cut when a comparison died makes room for it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"format": FORMAT, **result}) + "\n"
        with self._path.open("a+b") as file:
            # Not the lock of `locked`: whoever has that one, another program may append (`load.waiting`).
            fcntl.lockf(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line.encode())

    def latest(self) -> dict[Key, Result]:
        """The last line of each run, failed ones too. Raises `ValueError`, which names a line that is no result."""
        return {Key.of(result): result for result, _ in lines(self._path)} if self._path.exists() else {}

    def done(self) -> set[Key]:
        """What need not run again. A run that failed may."""
        return {key for key, result in self.latest().items() if "failed" not in result}
