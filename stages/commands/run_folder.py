"""The folder of a running `headrace up`: where it is reached, its logs, its store if it has no other.

It lies in the user's cache folder as `headrace/up-<machine>-<pid>`, goes when `up` ends, and is swept by the next one
if that could not happen. `headrace ask` and `headrace status` find the running pipeline through it.
"""

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

STATE = "state.json"
SAME_PROCESS_S = 2.0
"""A process that started so much later than the file says is another one with the same number."""


@dataclass(frozen=True)
class Running:
    """A `headrace up` that runs. `started` is its process's start (Unix seconds)."""

    url: str
    pid: int
    started: float

    @property
    def alive(self) -> bool:
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) < SAME_PROCESS_S
        except psutil.Error:
            return False


class RunFolder:
    """The folder of this process."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Makes it, and removes those that nobody uses any more."""
        sweep(environ)
        self.path = home(environ) / f"{_prefix()}{os.getpid()}"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True, mode=0o700)
        self._tell("")

    @property
    def store(self) -> Path:
        return self.path / "nats"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def announce(self, url: str) -> None:
        """From now on other commands of this user find the pipeline. A URL with a password in it is not written."""
        if "@" not in url:
            self._tell(url)

    def remove(self, *, keep_logs: bool = False) -> None:
        """Leaves nothing, or the logs alone (the next `headrace up` removes them)."""
        if not keep_logs:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        shutil.rmtree(self.store, ignore_errors=True)
        (self.path / STATE).unlink(missing_ok=True)

    def _tell(self, url: str) -> None:
        running = Running(url, os.getpid(), psutil.Process().create_time())
        temporary = self.path / f"{STATE}.new"
        temporary.write_text(json.dumps(asdict(running)), encoding="utf-8")
        temporary.replace(self.path / STATE)


def home(environ: Mapping[str, str]) -> Path:
    """Where the folders lie: the user's cache, or a temporary folder where that cannot be written."""
    cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".cache")
    folder = Path(cache) / "headrace"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to somebody else") from None
    return folder


def find_running(environ: Mapping[str, str]) -> Running | None:
    """The pipeline on this machine that was started last, if one runs."""
    found = [running for folder in _folders(environ) if (running := _read(folder)) and running.url and running.alive]
    return max(found, key=lambda running: running.started, default=None)


def sweep(environ: Mapping[str, str]) -> None:
    """Removes the folders of those that were killed, and logs that were kept."""
    for folder in _folders(environ):
        running = _read(folder)
        starting_or_alive = running.alive if running else psutil.pid_exists(int(folder.name.rpartition("-")[2]))
        if not starting_or_alive:
            shutil.rmtree(folder, ignore_errors=True)


def _folders(environ: Mapping[str, str]) -> list[Path]:
    prefix = _prefix()
    names = [path for path in home(environ).iterdir() if path.name.startswith(prefix)]
    return [path for path in names if path.name.removeprefix(prefix).isdigit()]


def _prefix() -> str:
    """Process numbers mean something on one machine only; homes are shared by several, and by containers."""
    return f"up-{platform.node()}-"


def _read(folder: Path) -> Running | None:
    try:
        return Running(**json.loads((folder / STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
