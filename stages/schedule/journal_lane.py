"""One partition's journal as this scheduler writes it: one message in flight, what comes meanwhile goes in the next."""

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

import structlog

from broker.connection import BrokerError
from schemas.journal import Alive, End, JournalMessage, Open, Released

FIRST_BACK_OFF_S = 0.1
LONGEST_BACK_OFF_S = 2.0
SLOW_S = 0.05
"""An append that takes longer than this holds up nobody but its own partition."""

ENTRIES_PER_MESSAGE = 1500

log = structlog.get_logger()


class Journal(Protocol):
    """`broker.journal.JournalWriter`."""

    async def append(self, partition: int, message: JournalMessage, timeout_s: float = 5) -> int: ...


class _Submission:
    def __init__(
        self,
        opens: Sequence[Open],
        ends: Sequence[End],
        released: Sequence[Released],
        silent: Sequence[str],
        alive: Sequence[Alive],
    ) -> None:
        self.opens = opens
        self.ends = ends
        self.released = released
        self.silent = silent
        self.alive = alive
        self.stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def __len__(self) -> int:
        return len(self.opens) + len(self.ends) + len(self.released) + len(self.silent) + len(self.alive)


class JournalLane:
    """Appends acknowledged messages to one partition, in order. A partition that refuses is closed for a moment."""

    def __init__(self, journal: Journal, partition: int, origin: str) -> None:
        self._journal = journal
        self._partition = partition
        self._origin = origin
        self._waiting: list[_Submission] = []
        self._writing: asyncio.Task[None] | None = None
        self._since = 0.0
        self._closed_until = 0.0
        self._back_off_s = 0.0

    def takes(self, now: float) -> bool:
        """Whether something submitted now would be stored at once, as far as one can know."""
        slow = self._writing is not None and now - self._since > SLOW_S
        return not slow and now >= self._closed_until

    async def submit(
        self,
        opens: Sequence[Open] = (),
        ends: Sequence[End] = (),
        released: Sequence[Released] = (),
        silent: Sequence[str] = (),
        alive: Sequence[Alive] = (),
    ) -> int:
        """The sequence of the stored message that holds these entries.

        Raises `BrokerError` when it was refused, or not confirmed in time: then it may be stored all the same.
        """
        submission = _Submission(opens, ends, released, silent, alive)
        self._waiting.append(submission)
        if self._writing is None:
            self._since = time.monotonic()
            self._writing = asyncio.create_task(self._write(), name=f"journal lane {self._partition}")
        return await submission.stored

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._append(self._next())
        finally:
            self._writing = None

    def _next(self) -> list[_Submission]:
        """What goes into the next message: everything that waits, up to a size."""
        entries, count = 0, 0
        for submission in self._waiting:
            if count and entries + len(submission) > ENTRIES_PER_MESSAGE:
                break
            entries += len(submission)
            count += 1
        chosen, self._waiting = self._waiting[:count], self._waiting[count:]
        return chosen

    async def _append(self, chosen: list[_Submission]) -> None:
        self._since = time.monotonic()
        message = JournalMessage(
            origin=self._origin,
            opens=[entry for submission in chosen for entry in submission.opens],
            released=[entry for submission in chosen for entry in submission.released],
            alive=[entry for submission in chosen for entry in submission.alive],
            silent=[worker for submission in chosen for worker in submission.silent],
            ends=[entry for submission in chosen for entry in submission.ends],
        )
        try:
            sequence = await self._journal.append(self._partition, message)
        except BrokerError as error:
            self._refused(chosen, error)
            return
        except Exception as error:  # noqa: BLE001 — whoever waits for it gets it
            _fail(chosen, error)
            return
        self._back_off_s = 0.0
        for submission in chosen:
            if not submission.stored.done():
                submission.stored.set_result(sequence)

    def _refused(self, chosen: list[_Submission], error: BrokerError) -> None:
        self._back_off_s = min(max(2 * self._back_off_s, FIRST_BACK_OFF_S), LONGEST_BACK_OFF_S)
        self._closed_until = time.monotonic() + self._back_off_s
        log.warning("schedule.journal_refused", partition=self._partition, error=str(error))
        _fail(chosen, error)


def _fail(submissions: list[_Submission], error: Exception) -> None:
    for submission in submissions:
        if not submission.stored.done():
            submission.stored.set_exception(error)
