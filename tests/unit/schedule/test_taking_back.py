"""From a silent worker to others: the journals are told, or, where they take nothing, the tickets are handed back."""

import asyncio

from broker.connection import Unavailable
from schemas.journal import Released
from stages.schedule.granted import Granted
from stages.schedule.journal_lane import JournalLane
from stages.schedule.taking_back import Silence, TakenBack, TakingBack
from tests.unit.schedule.stand_ins import MemoryJournal


class Desk:
    """Two partitions, and the tickets that were NAKed."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.naked: list[str] = []
        lanes = [JournalLane(self.journal, number, "s1") for number in range(2)]
        self.taking_back = TakingBack(lanes, self.nak)

    async def nak(self, ack_subject: str) -> None:
        if ack_subject == "ack.cut off":
            raise Unavailable("no connection")
        self.naked.append(ack_subject)


def taken_back(name: str, partition: int) -> TakenBack:
    granted = Granted(1, f"ack.{name}", "w", 0.0, key=f"t.{name}", choice=0, partition=partition, attempt=3)
    return TakenBack(granted, Released(granted.key, 0, 3, died=True, worker="w"))


def silent(*tickets: TakenBack) -> list[Silence]:
    return [Silence("w", list(tickets))]


async def test_partitions_without_a_ticket_of_ours_hear_of_it_too() -> None:
    """The worker may have tickets of a scheduler that died before it: the owners know of them."""
    desk = Desk()
    await desk.taking_back.carry_out([*silent(), Silence("v", [taken_back("a", 1)])])

    told = dict(desk.journal.messages)
    assert {partition: message.silent for partition, message in told.items()} == {0: ["w", "v"], 1: ["w", "v"]}
    assert [one.key for one in desk.journal.released] == ["t.a"]


async def test_every_partition_is_told_and_nobody_naks() -> None:
    """The owner counts the death and lets the ticket go, both as a function of its journal."""
    desk = Desk()
    await desk.taking_back.carry_out(silent(taken_back("a", 0), taken_back("b", 1), taken_back("c", 0)))

    told = [(partition, [one.key for one in message.released]) for partition, message in desk.journal.messages]
    assert sorted(told) == [(0, ["t.a", "t.c"]), (1, ["t.b"])]
    assert desk.naked == []


async def test_where_the_journal_takes_nothing_the_tickets_are_handed_back_at_once() -> None:
    """Uncounted: recovery does not wait for a partition. One that cannot be handed back costs the others nothing."""
    desk = Desk()
    desk.journal.fail[0] = Unavailable("full")
    await desk.taking_back.carry_out(silent(taken_back("cut off", 0), taken_back("a", 0), taken_back("b", 1)))

    assert desk.naked == ["ack.a"]
    assert [one.key for one in desk.journal.released] == ["t.b"]


async def test_a_partition_that_does_not_answer_holds_up_no_other() -> None:
    """Its tickets wait for it alone."""
    desk = Desk()
    gate = desk.journal.gate[0] = asyncio.Event()
    telling = asyncio.create_task(desk.taking_back.carry_out(silent(taken_back("a", 0), taken_back("b", 1))))
    async with asyncio.timeout(30):
        while not desk.journal.released:  # noqa: ASYNC110 — a journal in memory has no event
            await asyncio.sleep(0)
    assert [one.key for one in desk.journal.released] == ["t.b"]
    gate.set()
    await telling
    assert len(desk.journal.released) == 2
