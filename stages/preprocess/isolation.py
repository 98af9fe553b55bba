"""Requests that came back so often that they may be what kills this stage: tried in a process of their own first.

A delivery count alone convicts nobody: it also counts what was handed back for want of room, and what was in hand
beside the culprit. A request is poison if the child process does not survive it.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

import structlog

from schemas.model import ModelCard
from stages.preprocess.preparation import Incoming
from stages.preprocess.probe import DONE, Model, Suspect, frame
from stages.process.parent import PARENT_VARIABLE

log = structlog.get_logger()

DEATHS = 3
"""A request that was delivered more often is suspicious."""

TRY_S = 60.0
LOAD_S = 60.0
IDLE_S = 30.0

CHILD = (sys.executable, "-m", "stages.preprocess.probe")

Files = Callable[[ModelCard], Awaitable[dict[str, bytes]]]


class Isolation:
    """One child process, started when there is a suspect, one suspect at a time, gone when there was none for 30 s."""

    def __init__(self, files: Files, *, child: Sequence[str] = CHILD, try_s: float = TRY_S) -> None:
        self._files = files
        self._command = tuple(child)
        self._try_s = try_s
        self._one_at_a_time = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None
        self._card: ModelCard | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def survives(self, incoming: Incoming, card: ModelCard) -> bool:
        """Whether this request, of the model `card`, can be prepared without harm. Raises `BrokerError` (its files)."""
        async with self._one_at_a_time:
            self._stay()
            try:
                child = await self._child_for(card)
                suspect = Suspect(incoming.data, incoming.content_type, incoming.tenant)
                survived = await _answered(child, frame(suspect), self._try_s)
                if not survived:
                    log.error("preprocess.child_died", model=card.slug)
                    await self.close()
                return survived
            finally:
                self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end)

    async def close(self) -> None:
        """Ends the child."""
        self._stay()
        child = self._child
        self._end()
        if child is not None:
            await child.wait()

    async def _child_for(self, card: ModelCard) -> asyncio.subprocess.Process:
        """A child that has this model. Raises `ChildFailedError` where that is impossible: nothing is proved then."""
        child = self._child
        if child is None or child.returncode is not None:
            self._card = None
            child = self._child = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
            )
        if self._card != card:
            files = await self._files(card)
            if not await _answered(child, frame(Model(card, files)), LOAD_S):
                await self.close()
                raise ChildFailedError(f"the child process does not load {card.name}")
            self._card = card
        return child

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end(self) -> None:
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
        self._child = None
        self._card = None


class ChildFailedError(Exception):
    """The child process could not be made ready; the request is innocent."""


async def _answered(child: asyncio.subprocess.Process, data: bytes, within_s: float) -> bool:
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        async with asyncio.timeout(within_s):
            child.stdin.write(data)
            await child.stdin.drain()
            return await child.stdout.readexactly(1) == DONE
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        return False
