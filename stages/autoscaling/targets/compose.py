"""The containers of a Docker Compose project, by `docker compose` or, where there is none, `docker-compose` (1.x).

A group's service has its name; `inference:<model>` is the service `inference-<model>`.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from stages.autoscaling.targets.target import TargetError
from stages.replicas import ReplicaState

LOOK_S = 30.0
CHANGE_S = 600.0
"""As long as containers may take to stop, and an image to be unpacked."""

LOOK_AGAIN_S = 10.0
"""Asking costs half a second of a CPU: so long what was seen or done last is taken for what is there."""

SHOWN = 400
PROGRAMS = (("docker", "compose"), ("docker-compose",))


class CommandFailed(TargetError):
    """It ran, and ended with another status than 0."""


class ComposeTarget:
    """`groups` are those that it is asked for; without `files` and `project` Compose looks for them as it does."""

    def __init__(self, groups: Sequence[str], files: Sequence[Path] = (), project: str = "") -> None:
        self._groups = list(groups)
        self._options = [text for file in files for text in ("-f", str(file))] + (["-p", project] if project else [])
        self._program: list[str] = []
        self._seen: dict[str, tuple[int, float]] = {}

    async def state(self) -> ReplicaState:
        """A container counts as ready as soon as it is there: workers tell themselves, by their heartbeats."""
        counts = {group: await self._count(group) for group in self._groups}
        return ReplicaState(counts, dict(counts))

    async def wrong_files(self) -> str:
        """What Compose has against the files, "" where that is nothing, or where there is nobody to ask."""
        try:
            await self._compose(["config", "--quiet"], LOOK_S)
        except CommandFailed as error:
            return str(error)
        except TargetError:  # the first round says it
            return ""
        return ""

    async def set(self, group: str, count: int) -> None:
        service = service_of(group)
        self._seen.pop(group, None)
        how = ["up", "-d", "--no-recreate", "--no-build", "--no-deps", "--scale", f"{service}={count}", service]
        await self._compose(how, CHANGE_S)
        self._seen[group] = count, time.monotonic()

    async def _count(self, group: str) -> int:
        count, at = self._seen.get(group, (0, float("-inf")))
        if time.monotonic() - at > LOOK_AGAIN_S:
            count = len((await self._compose(["ps", "-q", service_of(group)], LOOK_S)).split())
            self._seen[group] = count, time.monotonic()
        return count

    async def _compose(self, arguments: Sequence[str], seconds: float) -> str:
        if not self._program:
            self._program = await _find_program()
        return await run([*self._program, *self._options, *arguments], seconds)


def service_of(group: str) -> str:
    return group.replace(":", "-")


async def run(command: Sequence[str], seconds: float) -> str:
    """What it prints. Raises `CommandFailed`; `TargetError` where it cannot run, or takes longer: then it is ended."""
    shown = " ".join(command)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise TargetError(f"{shown}: {error.strerror}") from error
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise TargetError(f"{shown}: not done after {seconds:g} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise CommandFailed(
            f"{shown}: status {process.returncode}: {' '.join(err.decode(errors='replace').split())[-SHOWN:]}"
        )
    return out.decode(errors="replace")


async def _find_program() -> list[str]:
    """Version 2 is a plugin of `docker`, version 1 a program of its own. Raises `TargetError`."""
    reasons: list[str] = []
    for program in PROGRAMS:
        try:
            await run([*program, "version"], LOOK_S)
        except TargetError as error:
            reasons.append(str(error))
        else:
            return list(program)
    raise TargetError(f"there is no Docker Compose here ({'; '.join(reasons)})")
