"""Requests as they go out: each gets a record, and whatever becomes of it ends no other."""

from collections import Counter
from collections.abc import Iterator
from itertools import count

from load.generator.record import Record, clock
from load.generator.target import Failed, Target
from load.workload.chats import Chats


class Asking:
    """`ask()` sends the next chat. `records` are all requests in the order in which they went out."""

    def __init__(self, target: Target, chats: Chats, *, keep_text: bool) -> None:
        self._target = target
        self._chats = chats
        self._keep_text = keep_text
        self._numbers: Iterator[int] = count()
        self.records: list[Record] = []
        self.running: set[Record] = set()
        self.errors: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        """The first message of each code of error, for a person."""
        self._events = 0

    @property
    def events(self) -> int:
        """Pieces with text so far."""
        return self._events + sum(len(record.events) for record in self.running)

    async def ask(self, planned: float) -> bool:
        """Whether an answer came. A cancel lets the request go: its record never ends."""
        chat = self._chats.next()
        messages = chat.messages if self._keep_text else None
        record = Record(next(self._numbers), planned, chat.output, clock(), messages=messages)
        self.records.append(record)
        self.running.add(record)
        try:
            await self._target.ask(chat, record)
            record.ended = clock()
        except Exception as error:  # noqa: BLE001 — whatever it is, the others go on
            self._failed(record, error)
        finally:
            self.running.discard(record)
            self._close(record)
        if record.error:
            return False
        self._chats.answered(chat, record.text)
        return True

    def _failed(self, record: Record, error: Exception) -> None:
        record.ended = clock()
        record.error = error.code if isinstance(error, Failed) else type(error).__name__
        self.errors[record.error] += 1
        self.reasons.setdefault(record.error, str(error))

    def _close(self, record: Record) -> None:
        self._events += len(record.events)
        record.text = "".join(record.pieces)
        record.pieces = []
