"""The file of results: a JSON line for each run, appended as it ends, so that a comparison can be continued."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    def append(self, result: Result) -> None:
        """One more line. One that was cut when a comparison died makes room for it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"format": FORMAT, **result}) + "\n"
        with self._path.open("a+b") as file:
            file.truncate(self._whole_bytes())
            file.write(line.encode())

    def latest(self) -> dict[Key, Result]:
        """The last line of each run, failed ones too."""
        return {Key.of(result): result for result in self._read()}

    def done(self) -> set[Key]:
        """What need not run again. A run that failed may."""
        return {key for key, result in self.latest().items() if "failed" not in result}

    def _read(self) -> Iterator[Result]:
        """Raises `ValueError`, which names the line, where one is no result; a cut last line is none yet."""
        text = self._path.read_bytes() if self._path.exists() else b""
        for number, line in enumerate(text[: self._whole_bytes()].splitlines(), 1):
            try:
                result: Result = json.loads(line)
                Key.of(result)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self._path.name}, line {number} is no result: {error!r}") from error
            yield result

    def _whole_bytes(self) -> int:
        """Up to the end of the last whole line."""
        return self._path.read_bytes().rfind(b"\n") + 1 if self._path.exists() else 0
