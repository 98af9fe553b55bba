"""A process started for a comparison, and everything that it starts: nothing of it outlives `stop`."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from load.pipeline import ROOT

START_S = 300.0
STOP_S = 30.0
LEFT_OVER_S = 5.0
LOOK_S = 0.2
TAIL_CHARACTERS = 3000


class NotStarted(RuntimeError):
    """A process ended, or was not ready in time; the message is the end of what it said."""


class Started:
    """A running process; its output goes to `<name>.out` and `<name>.err` in `folder`.

    It leads a session of its own: Ctrl-C in a terminal reaches the comparison alone, which then stops it in order.
    """

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def out(self) -> str:
        """What it wrote to stdout so far."""
        return self._out.read_text(errors="replace")

    @property
    def said(self) -> str:
        """The end of what it wrote."""
        return "\n".join(path.read_text(errors="replace")[-TAIL_CHARACTERS:] for path in (self._out, self._err))

    def wait_until(self, ready: Callable[[], bool], patience_s: float = START_S) -> None:
        """Returns once `ready()`. Raises `NotStarted` where the process ends first, or takes too long."""
        give_up_at = time.monotonic() + patience_s
        while not ready():
            if self._process.poll() is not None:
                raise NotStarted(f"{self.name} ended with status {self._process.returncode}:\n{self.said}")
            if time.monotonic() > give_up_at:
                raise NotStarted(f"{self.name} was not ready after {patience_s:.0f} s:\n{self.said}")
            time.sleep(LOOK_S)

    def finish(self, patience_s: float) -> int:
        """Waits for its end; the exit status. Raises `NotStarted` where it takes longer than `patience_s`."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise NotStarted(f"{self.name} did not end within {patience_s:.0f} s:\n{self.said}") from None

    def stop(self) -> None:
        """SIGTERM, and time to end in order; then SIGKILL for all that is left of it."""
        tree = self._tree()
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        _, left = psutil.wait_procs(tree, timeout=LEFT_OVER_S if self.ended else 0)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(left, timeout=LEFT_OVER_S)

    def _tree(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            return [process, *process.children(recursive=True)]
        return []
