"""The folder of a running `headrace up`: where it is reached, its logs, its store if it has no other.

It lies in the user's cache folder as `headrace/up-<machine>-<pid>`, goes when `up` ends, and is swept by the next one
if that could not happen. `headrace ask` and `headrace status` find the running pipeline through it.
"""

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

STATE = "state.json"
CONTROL = "control.sock"
LONGEST_SOCKET_PATH = 100
"""Bytes. The systems allow 103 to 107."""
ELSEWHERE = "headrace-control-"
SAME_PROCESS_S = 2.0
"""A process that started so much later than the file says is another one with the same number."""


@dataclass(frozen=True)
class Running:
    """A `headrace up` that runs. `started` is its process's start (Unix seconds), `control` its socket ("": none).

    `secrets` is the folder of identities that its broker asks for ("": none).
    """

    url: str
    pid: int
    started: float
    control: str = ""
    secrets: str = ""

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
        self._control: Path | None = None
        self._url = ""
        self._secrets = ""
        self._tell()

    @property
    def store(self) -> Path:
        return self.path / "nats"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def secrets(self) -> Path:
        return self.path / "secrets"

    def announce(self, url: str, secrets: Path | None = None) -> None:
        """From now on other commands of this user find the pipeline. A URL with a password in it is not written."""
        if "@" not in url:
            self._url = url
            self._secrets = str(secrets) if secrets is not None else ""
            self._tell()

    def control(self) -> Path:
        """Where the control socket may be made, for this user alone, and is found by other commands.

        In this folder, or where its path is too long for a socket in a temporary one.
        """
        if self._control is None:
            inside = self.path / CONTROL
            short = len(os.fsencode(inside)) <= LONGEST_SOCKET_PATH
            self._control = inside if short else Path(tempfile.mkdtemp(prefix=ELSEWHERE)) / CONTROL
            self._tell()
        return self._control

    def remove(self, *, keep_logs: bool = False) -> None:
        """Leaves nothing, or the logs alone (the next `headrace up` removes them)."""
        if self._control is not None:
            _remove_elsewhere(self._control)
        if not keep_logs:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.rmtree(self.secrets, ignore_errors=True)
        (self.path / STATE).unlink(missing_ok=True)

    def _tell(self) -> None:
        control = str(self._control) if self._control is not None else ""
        running = Running(self._url, os.getpid(), psutil.Process().create_time(), control, self._secrets)
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
    return _newest(running for running in _running(environ) if running.url)


def find_control(environ: Mapping[str, str]) -> Path | None:
    """The control socket of the pipeline on this machine that was started last, if one runs."""
    newest = _newest(running for running in _running(environ) if running.control)
    return Path(newest.control) if newest is not None else None


def _running(environ: Mapping[str, str]) -> list[Running]:
    return [running for folder in _folders(environ) if (running := _read(folder)) and running.alive]


def _newest(found: Iterable[Running]) -> Running | None:
    return max(found, key=lambda running: running.started, default=None)


def sweep(environ: Mapping[str, str]) -> None:
    """Removes the folders of those that were killed, and logs that were kept."""
    for folder in _folders(environ):
        running = _read(folder)
        starting_or_alive = running.alive if running else psutil.pid_exists(int(folder.name.rpartition("-")[2]))
        if not starting_or_alive:
            shutil.rmtree(folder, ignore_errors=True)
            if running and running.control:
                _remove_elsewhere(Path(running.control))


def _folders(environ: Mapping[str, str]) -> list[Path]:
    prefix = _prefix()
    names = [path for path in home(environ).iterdir() if path.name.startswith(prefix)]
    return [path for path in names if path.name.removeprefix(prefix).isdigit()]


def _remove_elsewhere(control: Path) -> None:
    """The folder of a socket that could not lie in ours."""
    if control.parent.name.startswith(ELSEWHERE):
        shutil.rmtree(control.parent, ignore_errors=True)


def _prefix() -> str:
    """Process numbers mean something on one machine only; homes are shared by several, and by containers."""
    return f"up-{platform.node()}-"


def _read(folder: Path) -> Running | None:
    try:
        return Running(**json.loads((folder / STATE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
