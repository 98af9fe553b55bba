"""Acknowledgements many at a time: all of a batch are sent, and the last of them asks the broker for an answer.

A consumer deals with what comes over one connection in order: the answer to the last one says that all before it took
effect. So a message costs a few bytes to the broker, instead of a round trip of its own.
"""

import asyncio

from broker.connection import Connection, Unavailable
from broker.delivery import ack, confirm_ack
from broker.settling import settle

PATIENCE_S = 30.0
BACK_OFF_S = 0.1
LARGEST = 256


class Acks:
    """`gather_s` is how long the first of a batch waits for others, `at_most` how many go at once without waiting."""

    def __init__(self, connection: Connection, *, gather_s: float = 0.0, at_most: int = LARGEST) -> None:
        self._connection = connection
        self._gather_s = gather_s
        self._at_most = max(1, min(at_most, LARGEST))
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def confirm(self, ack_subject: str) -> None:
        """Removes the message from its work queue and waits for the word of it, also where it was redelivered.

        Tries again for 30 s; then raises `Unavailable`: it may be removed or not. A cancelled caller's is sent as well.
        """
        loop = asyncio.get_running_loop()
        confirmed: asyncio.Future[None] = loop.create_future()
        self._waiting.append((ack_subject, confirmed))
        if len(self._waiting) >= self._at_most:
            self.flush()
        elif self._timer is None:
            self._timer = loop.call_later(self._gather_s, self.flush) if self._gather_s else loop.call_soon(self.flush)
        await confirmed

    def gather_no_more(self) -> None:
        """From now on each goes at once: this is the end."""
        self._gather_s = 0.0
        self.flush()

    def flush(self) -> None:
        """Sends what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._waiting = self._waiting, []
        if batch:
            task = asyncio.create_task(settle(batch, self._send_patiently), name="acks")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_patiently(self, ack_subjects: list[str]) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                return await self._send(ack_subjects)
            except Unavailable:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(BACK_OFF_S)

    async def _send(self, ack_subjects: list[str]) -> None:
        for each in ack_subjects[:-1]:
            await ack(self._connection, each)
        await confirm_ack(self._connection, ack_subjects[-1])
