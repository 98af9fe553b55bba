"""A whole pipeline of real processes, as a person starts it: `headrace up`, and single stages beside it.

For benchmarks, chaos runs and acceptance tests. Everything listens on loopback, and everything started is stopped.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parent.parent
READY_S = 60.0
STOP_S = 30.0


class NotReady(RuntimeError):
    """The pipeline died or took too long; the message is what it said."""


class Pipeline:
    """A running `headrace up`, which ends with `stop` or the `with` block. `url` is its broker's.

    Everything it writes lies in `folder`. Ctrl-C in a terminal reaches the tool alone, which then stops it in order.

    Without an edge, unless `arguments` say `--replicas edge=1`: then it answers at `api_url`.
    """

    def __init__(self, folder: Path, arguments: list[str], ready_s: float = READY_S) -> None:
        self.folder = folder
        self.environ = {
            **os.environ,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "HEADRACE_LOG_FORMAT": "json",
            "PYTHONWARNINGS": "default",
        }
        self.environ.pop("HEADRACE_NATS_URL", None)
        self._output = (folder / "up.out").open("wb")
        edge = [] if any(text.startswith("edge=") for text in arguments) else ["--replicas", "edge=0"]
        command = ["up", "--logs", str(folder / "logs"), *edge, *arguments]
        self._beside: list[subprocess.Popen[bytes]] = []
        self.process = self._start(command)
        try:
            self.url = self._wait_until_ready(ready_s)
        except BaseException:  # Ctrl-C too: nobody else has this process at hand
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def output(self) -> str:
        return (self.folder / "up.out").read_text(errors="replace")

    @property
    def api_url(self) -> str:
        """Where the edge answers (`http://…/v1`), "" without one."""
        lines = [line for line in self.output.splitlines() if line.startswith("OpenAI API: ")]
        return lines[0].split()[-1] if lines else ""

    def log_of(self, part: str) -> str:
        """The logs of all processes whose name contains `part`."""
        files = sorted(path for path in (self.folder / "logs").glob(f"*{part}*") if path.is_file())
        return "\n".join(file.read_text(errors="replace") for file in files)

    def start_stage(self, name: str, **settings: str) -> subprocess.Popen[bytes]:
        """One more process of a stage, not under the supervisor."""
        self.environ["HEADRACE_NATS_URL"] = self.url
        sets = [text for field, value in settings.items() for text in ("--set", f"{field}={value}")]
        process = self._start(["stage", name, *sets])
        self._beside.append(process)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command line against this pipeline."""
        command = [sys.executable, "-m", "stages.cli", *arguments]
        environ = {**self.environ, "HEADRACE_NATS_URL": self.url}
        return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=30, check=False)

    def status(self) -> dict[str, Any]:
        """What `headrace status --json` says."""
        done = self.run("status", "--json")
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)

    def stop(self) -> int:
        """SIGTERM to everything started here; the exit status of `headrace up`."""
        with contextlib.ExitStack() as stack:  # the last one first, and all of them whatever interrupts it
            stack.callback(self._output.close)
            for process in (self.process, *self._beside):
                stack.callback(terminate, process)
        return self.process.wait()

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "stages.cli", *arguments]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=self.environ,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _wait_until_ready(self, ready_s: float) -> str:
        deadline = time.monotonic() + ready_s
        while "ready after" not in self.output:
            if self.process.poll() is not None or time.monotonic() > deadline:
                terminate(self.process)
                raise NotReady(f"{self.output}\n{self.log_of('')}"[-6000:])
            time.sleep(0.05)
        return next(line.split()[-1] for line in self.output.splitlines() if "ready after" in line)


def terminate(process: subprocess.Popen[bytes]) -> int:
    """SIGTERM, then SIGKILL for one that does not go within its time, or where the wait is broken off; the status."""
    process.send_signal(signal.SIGTERM)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    finally:
        process.kill()  # does nothing to one that has ended
        process.wait()
    return process.returncode
