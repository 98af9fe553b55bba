"""Cancels become `end` entries, in the partitions that are owned here."""

import asyncio

import pytest

from broker.connection import Unavailable
from broker.subjects import partition_of
from schemas.control import Cancel
from schemas.faults import Fault
from schemas.journal import End, JournalMessage
from schemas.result import Result
from stages.postprocess import cancelling
from stages.postprocess.cancelling import CANCELLED, CancelledRequests

PARTITIONS = 4
KEY = "acme.r1"
HOME = partition_of(KEY, PARTITIONS)
CANCEL = Cancel("s1", "json")


class MemoryJournal:
    """`broker.journal.JournalWriter`; refuses the first `refusals` appends."""

    def __init__(self, refusals: int = 0) -> None:
        self.messages: list[tuple[int, JournalMessage]] = []
        self.refusals = refusals

    async def append(self, partition: int, message: JournalMessage, timeout_s: float = 5.0) -> int:
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("away")
        self.messages.append((partition, message))
        return len(self.messages)

    @property
    def ends(self) -> list[End]:
        return [end for _, message in self.messages for end in message.ends]


class MemoryPartition:
    """`PartitionReader`, as far as cancels need it."""

    def __init__(self, open_choices: list[int], history: list[Result]) -> None:
        self._open_choices = open_choices
        self._history = history

    def open_choices(self, key: str) -> list[int]:
        return self._open_choices

    async def history(self, key: str, session: str) -> list[Result]:
        return self._history


async def cancelled(
    journal: MemoryJournal, owned: dict[int, MemoryPartition], *, then_gained: int | None = None
) -> CancelledRequests:
    """The request is cancelled, and everything that follows at once has happened."""
    requests = CancelledRequests(journal, "p-1", PARTITIONS, owned)
    await requests.on_cancel(KEY, CANCEL)
    if then_gained is not None:
        owned[then_gained] = MemoryPartition([], [])
        requests.gained(then_gained)
    await asyncio.sleep(0.02)
    return requests


async def test_every_open_choice_ends() -> None:
    """Those in memory and those that only stored results tell of; not those that have ended."""
    history = [
        Result(choice=0, attempt=1, at=1),
        Result(choice=1, attempt=2, at=2),
        Result(choice=1, attempt=2, at=3, finish="stop"),
    ]
    journal = MemoryJournal()
    await cancelled(journal, {HOME: MemoryPartition([2], history)})
    assert journal.ends == [
        End(key=KEY, choice=choice, session="s1", fault=CANCELLED, encoding="json") for choice in (0, 2)
    ]
    assert journal.messages[0][0] == HOME


async def test_an_unknown_request_ends_too() -> None:
    """It may not have come as far as a journal yet: its client is answered all the same."""
    journal = MemoryJournal()
    await cancelled(journal, {HOME: MemoryPartition([], [])})
    assert [(end.key, end.choice) for end in journal.ends] == [(KEY, 0)]


async def test_an_ended_request_stays_as_it_is() -> None:
    """C9: a cancel that comes too late writes nothing."""
    journal = MemoryJournal()
    ended = [Result(choice=0, attempt=0, at=1, fault=Fault("deadline", "too late"))]
    await cancelled(journal, {HOME: MemoryPartition([], ended)})
    assert journal.messages == []


async def test_partitions_of_others_are_theirs() -> None:
    """And one that is gained later is looked at again: its last owner may have died before it wrote."""
    journal = MemoryJournal()
    await cancelled(journal, {(HOME + 1) % PARTITIONS: MemoryPartition([0], [])})
    assert journal.messages == []
    await cancelled(journal, {}, then_gained=HOME)
    assert [end.key for end in journal.ends] == [KEY]


async def test_a_broker_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cancel is not forgotten."""
    monkeypatch.setattr(cancelling, "RETRY_S", 0.001)
    journal = MemoryJournal(refusals=2)
    await cancelled(journal, {HOME: MemoryPartition([0], [])})
    assert [end.key for end in journal.ends] == [KEY]
