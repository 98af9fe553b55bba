"""One process of a stage under `headrace up`: started, watched, and started again when it died."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from stages.lifecycle import WRONG_SETTINGS
from stages.process.announcing import READY_FD_VARIABLE
from stages.process.backoff import Backoff
from stages.process.child_output import Output, Sink
from stages.process.child_pipe import ChildPipe
from stages.process.parent import PARENT_VARIABLE

log = structlog.get_logger()

DRAIN_OUTPUT_S = 1.0

Tell = Callable[[str], None]
"""Takes one line for a person."""

PROGRAM = (sys.executable, "-m", "stages.cli", "stage")


@dataclass(frozen=True)
class ChildSpec:
    """Which process to run: `program` with the stage's name. `environ` goes over this process's own environment.

    `model` is the slug of what it serves, where a stage has processes for several.
    """

    stage: str
    number: int
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    program: tuple[str, ...] = PROGRAM
    model: str = ""

    @property
    def group(self) -> str:
        """What it is a replica of: the stage, or `stage:model`."""
        return f"{self.stage}:{self.model}" if self.model else self.stage

    @property
    def name(self) -> str:
        return f"{self.stage}.{self.number}"

    @property
    def command(self) -> list[str]:
        return [*self.program, self.stage]

    def with_more(self, environ: Mapping[str, str]) -> "ChildSpec":
        """The same with more variables; what it says itself stays."""
        return replace(self, environ={**environ, **self.environ})


class HopelessError(Exception):
    """A child that starting again cannot help: its settings are wrong, or it never became ready.

    `said` is what it said of it.
    """

    def __init__(self, name: str, reason: str, said: list[str], *, wrong_settings: bool = False) -> None:
        super().__init__("\n".join([f"{name} {reason}", *(f"  {line}" for line in said)]))
        self.wrong_settings = wrong_settings


class Child:
    """`run()` keeps the process running until `stop()`; `ready` is set while the process says it can take work.

    The process leads a session of its own: Ctrl-C in a terminal reaches `headrace up` alone, which stops its
    children in order. It must be started in the main thread, whose death is what the kernel tells it.
    """

    def __init__(self, spec: ChildSpec, sink: Sink, give_up_after: int = 0, tell: Tell | None = None) -> None:
        """`give_up_after`: so many deaths in a row before it was ever ready are hopeless; 0 never gives up.

        `tell` is told in words of a death and of what follows.
        """
        self.spec = spec
        self.ready = asyncio.Event()
        self.starts = 0
        self._tell = tell
        self._problems: list[str] = []
        self._output = Output(sink(spec.name))
        self._give_up_after = give_up_after
        self._was_ready = False
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """0 while there is no process."""
        return self._process.pid if self._process else 0

    async def run(self) -> None:
        """Returns after `stop` or `kill`, when the process has ended. Raises `HopelessError`."""
        backoff = Backoff()
        while not self._stopping.is_set():
            started = time.monotonic()
            status = await self._run_once()
            if self._stopping.is_set():
                log.debug("child.stopped", child=self.spec.name, status=status)
                return
            self._judge(status)
            wait_s = backoff.after(time.monotonic() - started)
            self._report_death(status, wait_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()

    def stop(self) -> None:
        """Soft: the process finishes what is in hand. It is not started again."""
        self._stopping.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Hard: at once, with everything that it started."""
        self._stopping.set()
        if self._process is not None:
            _kill_group(self._process.pid)

    def _report_death(self, status: int, wait_s: float) -> None:
        log.warning("child.died", child=self.spec.name, status=status, again_in_s=wait_s)
        if self._tell:
            self._tell(f"{self.spec.name} died ({_in_words(status)}); it starts again in {wait_s:g} s")

    def _judge(self, status: int) -> None:
        """Raises `HopelessError` where starting it again would only repeat this."""
        said = self._problems or self._output.last_lines
        if status == WRONG_SETTINGS:
            raise HopelessError(self.spec.name, "has wrong settings:", said, wrong_settings=True)
        if self._give_up_after and not self._was_ready and self.starts >= self._give_up_after:
            raise HopelessError(self.spec.name, f"died {self.starts} times before it was ready:", said)

    async def _run_once(self) -> int:
        """One life of the process; its exit status (negative: a signal)."""
        self.starts += 1
        self._problems = []
        said, readiness = ChildPipe(), ChildPipe()
        process = await self._start(said, readiness)
        self._process = process
        if self._stopping.is_set():  # asked for while it started
            self.stop()
        log.debug("child.started", child=self.spec.name, pid=process.pid)
        output = asyncio.create_task(said.read(self._output.read))
        following = asyncio.create_task(readiness.read(self._follow_readiness))
        try:
            return await process.wait()
        finally:
            self._process = None
            self.ready.clear()
            _kill_group(process.pid)  # what it started itself, if it died without ending that
            await asyncio.wait({output, following}, timeout=DRAIN_OUTPUT_S)
            output.cancel()
            following.cancel()
            self.ready.clear()  # once more: a last word may have been read meanwhile

    async def _start(self, said: ChildPipe, readiness: ChildPipe) -> asyncio.subprocess.Process:
        own = {PARENT_VARIABLE: str(os.getpid()), READY_FD_VARIABLE: str(readiness.write_fd)}
        try:
            return await asyncio.create_subprocess_exec(
                *self.spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=said.write_fd,
                stderr=said.write_fd,
                env={**os.environ, **self.spec.environ, **own},
                pass_fds=(readiness.write_fd,),
                start_new_session=True,
            )
        except BaseException:
            said.close()
            readiness.close()
            raise
        finally:
            said.close_child_end()
            readiness.close_child_end()

    async def _follow_readiness(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            word, _, rest = line.decode(errors="replace").strip().partition(" ")
            if word == "problem":
                self._problems.append(rest)
            elif word == "ready":
                self._set_ready()
            else:
                self.ready.clear()

    def _set_ready(self) -> None:
        if self.starts > 1 and self._tell and not self.ready.is_set():
            self._tell(f"{self.spec.name} is ready again")
        self._was_ready = True
        self.ready.set()


def _in_words(status: int) -> str:
    """A process's exit status; a negative one is the signal that ended it."""
    if status >= 0:
        return f"status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
