"""What was asked on one connection and not answered yet: one inbox for all answers, one timer for all patience."""

import asyncio
import math
from typing import TYPE_CHECKING, NamedTuple

from broker.late_answers import CATCH_UP_S, STOOD_STILL_S

if TYPE_CHECKING:
    from broker.connection import Connection, Inbound
    from broker.refusals import Refusal


class _Asked(NamedTuple):
    """What waits for its answer, `until` when (s, the loop's clock)."""

    subject: str
    answer: "asyncio.Future[Inbound | None]"
    until: float


class Answers:
    """`ask` from any number of tasks. The client library's own requests cost three times as much."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._inbox = ""
        self._opening = asyncio.Lock()
        self._asked = 0
        self._waiting: dict[str, _Asked] = {}  # by number
        self._unheard = ""
        self._alarm: asyncio.TimerHandle | None = None
        self._look_at = math.inf

    async def ask(
        self, subject: str, data: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> "Inbound":
        """The first answer. Raises `TimeoutError` after `timeout_s`, at once when the connection is lost meanwhile;
        `PermissionError`; and as `Connection.publish`.

        What came in while this process stood still is read before anything counts as late.
        """
        if not self._inbox:
            await self._open()
        if self._unheard:
            raise PermissionError(self._unheard)
        self._asked += 1
        number = str(self._asked)
        answer = asyncio.get_running_loop().create_future()
        self._expect(number, subject, answer, timeout_s)
        try:
            await self._connection.publish(subject, data, f"{self._inbox}.{number}", headers)
            message = await answer
        finally:
            del self._waiting[number]
        if message is None:
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        return message

    def lose(self) -> None:
        """The connection is lost, and every answer with it."""
        self._unheard = ""
        for asked in self._waiting.values():
            _give_up(asked.answer)

    def refuse(self, refusal: "Refusal") -> None:
        """The broker does not permit a question, or to hear any answer."""
        if not refusal.publish and refusal.subject == f"{self._inbox}.*".lower():
            self._unheard = f"the broker does not permit to hear answers at {self._inbox}"
        for asked in self._waiting.values():
            if asked.answer.done():
                continue
            if self._unheard:
                asked.answer.set_exception(PermissionError(self._unheard))
            elif refusal.publish and asked.subject.lower() == refusal.subject:
                asked.answer.set_exception(PermissionError(f"the broker does not permit to ask {asked.subject}"))

    async def _open(self) -> None:
        async with self._opening:
            if not self._inbox:
                inbox = self._connection.new_inbox()
                await self._connection.listen(f"{inbox}.*", self._on_answer)
                self._inbox = inbox

    def _on_answer(self, message: "Inbound") -> None:
        asked = self._waiting.get(message.subject.rpartition(".")[2])
        if asked is not None and not asked.answer.done():
            asked.answer.set_result(message)

    def _expect(self, number: str, subject: str, answer: "asyncio.Future[Inbound | None]", timeout_s: float) -> None:
        until = asyncio.get_running_loop().time() + timeout_s
        self._waiting[number] = _Asked(subject, answer, until)
        if until < self._look_at:
            self._set_alarm(until)

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(at, self._look)
        self._look_at = at

    def _look(self) -> None:
        """Ends the patience that is over. Most had their answers long before."""
        now, due = asyncio.get_running_loop().time(), self._look_at
        self._alarm, self._look_at = None, math.inf
        if now - due > STOOD_STILL_S:
            self._set_alarm(now + CATCH_UP_S)
            return
        for asked in self._waiting.values():
            if asked.until <= now:
                _give_up(asked.answer)
        if later := [asked.until for asked in self._waiting.values() if not asked.answer.done()]:
            self._set_alarm(min(later))


def _give_up(answer: "asyncio.Future[Inbound | None]") -> None:
    if not answer.done():
        answer.set_result(None)
