"""Ends on their way to the journals: together, in bounded messages, again until they are stored."""

import asyncio
from typing import Any

import pytest

from broker.connection import Unavailable
from broker.publisher import Full
from schemas.faults import Fault
from schemas.journal import End, JournalMessage
from stages.preprocess import ends as ends_module
from stages.preprocess.ends import Ends


class Journal:
    """Takes messages, or fails as often as it is told."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.stored: list[tuple[int, JournalMessage]] = []
        self.running: dict[int, int] = {}

    async def append(self, partition: int, message: JournalMessage) -> int:
        self.running[partition] = self.running.get(partition, 0) + 1
        assert self.running[partition] == 1  # two at once could overtake each other
        await asyncio.sleep(0.001)
        self.running[partition] -= 1
        if self.errors:
            raise self.errors.pop(0)
        self.stored.append((partition, message))
        return len(self.stored)

    def keys(self, partition: int) -> list[str]:
        return [end.key for at, message in self.stored if at == partition for end in message.ends]


def end(name: str) -> End:
    return End(key=f"t.{name}", choice=0, session="s", fault=Fault("internal", "x"))


async def test_what_waits_goes_together() -> None:
    """A thousand refusals are a few messages; each partition for itself, nothing lost, nothing twice."""
    journal = Journal()
    ends = Ends(journal.append, "preprocess-1")
    await asyncio.gather(*(ends.store(n % 2, [end(str(n))]) for n in range(1000)))
    assert sorted(journal.keys(0)) == sorted(f"t.{n}" for n in range(0, 1000, 2))
    assert len(journal.stored) <= 6
    assert all(len(message.ends) <= 256 for _, message in journal.stored)
    assert {message.origin for _, message in journal.stored} == {"preprocess-1"}


async def test_it_tries_again_until_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full journal, a broker that is away: the caller waits, for without it nobody would be answered."""
    monkeypatch.setattr(ends_module, "FIRST_PAUSE_S", 0.001)
    journal = Journal(Full("journal"), Unavailable("broker"))
    await Ends(journal.append, "p").store(0, [end("a"), end("b")])
    assert journal.keys(0) == ["t.a", "t.b"]


async def test_another_error_reaches_those_who_wait() -> None:
    """Nobody waits for ever; later ones are stored."""
    journal = Journal(RuntimeError("boom"))
    ends = Ends(journal.append, "p")
    with pytest.raises(RuntimeError, match="boom"):
        await ends.store(0, [end("a")])
    await ends.store(0, [end("b")])
    assert journal.keys(0) == ["t.b"]


async def test_a_caller_that_gives_up_costs_no_other() -> None:
    """Its end may be stored all the same: ends are idempotent."""
    journal = Journal(Full("journal"))
    ends = Ends(journal.append, "p")
    impatient = asyncio.create_task(ends.store(0, [end("a")]))
    patient = asyncio.create_task(ends.store(0, [end("b")]))
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    assert "t.b" in journal.keys(0)


async def test_close_forgets_what_is_not_stored() -> None:
    """A hard stop waits for nothing: the requests are not acknowledged yet and come again."""
    errors: list[Any] = [Full("journal")] * 100
    ends = Ends(Journal(*errors).append, "p")
    waiting = asyncio.create_task(ends.store(0, [end("a")]))
    await asyncio.sleep(0.01)
    await asyncio.wait_for(ends.close(), 1)
    waiting.cancel()
