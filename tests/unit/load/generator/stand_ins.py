"""A target without a server, and records of made-up answers."""

import asyncio
from array import array
from typing import Self

from load.generator.record import Record, clock
from load.generator.target import Failed
from load.workload.chats import Chat


class StandIn:
    """Answers every chat with a word a token, `itl_s` apart; every `fails`-th request fails with `code`."""

    def __init__(self, itl_s: float = 0.002, fails: int = 0, code: str = "internal") -> None:
        self.model = "simulated"
        self.asked: list[Chat] = []
        self.let_go = 0
        self.at_once = self.most_at_once = 0
        self._itl_s = itl_s
        self._fails = fails
        self._code = code

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def ask(self, chat: Chat, record: Record) -> None:
        self.asked.append(chat)
        if self._fails and len(self.asked) % self._fails == 0:
            raise Failed(self._code, "said no")
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self._answer(chat, record)
        except asyncio.CancelledError:
            self.let_go += 1
            raise
        finally:
            self.at_once -= 1

    async def _answer(self, chat: Chat, record: Record) -> None:
        for _ in range(chat.output):
            await asyncio.sleep(self._itl_s)
            record.events.append(clock())
            record.pieces.append("word ")
        record.prompt_tokens, record.output_tokens, record.finish = 100, chat.output, "length"


def answer(sent: float, events: list[float], *, tokens: int = 0, error: str = "", ended: bool = True) -> Record:
    """One whose last event ended it; `tokens` are those of its answer, by default one an event."""
    record = Record(0, sent, tokens or len(events), sent, events=array("d", events), error=error)
    record.prompt_tokens, record.output_tokens = 10, record.wanted
    record.ended = (events[-1] if events else sent) if ended else 0.0
    return record
