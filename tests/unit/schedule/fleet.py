"""Workers with books of their own, so that a scheduler's can be checked against them."""

import asyncio
from collections import Counter
from typing import Literal

from broker.connection import Inbound, Unavailable
from schemas.codec import decode, encode
from schemas.control import Pace, WorkerStatus
from schemas.grant import Credits, Grant, GrantItem, GrantReply
from schemas.poison import ALONE_FROM
from stages.schedule.granted import FORGET_AFTER
from tests.unit.schedule.stand_ins import MODEL, MemoryWorkers

Mood = Literal["well", "refuses", "mute", "deaf"]
"""How it answers grants: takes what fits; every other ticket; all, unheard; none, unheard."""

RESERVED = 16
"""Of each answer: all of `stand_ins.ticket`, which is less than the reserve."""


class FleetWorker:
    """`held` is what it holds, `told` the credits that it told last, `known` what a scheduler knows that it took.

    `known` counts, for each ticket, the heartbeats in a row that did not list it.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.kv_tokens = 500
        self.mood: Mood = "well"
        self.held: set[int] = set()
        self.told = Credits(0, 0)
        self.known: dict[int, int] = {}
        self.served: dict[str, int] = {}
        self.sent = 0

    def credits(self) -> Credits:
        self.told = Credits(max(self.slots - len(self.held), 0), self.kv_tokens)
        return self.told

    def status(self, name: str, prefill_tokens: int) -> WorkerStatus:
        """A heartbeat: what it does not list for some time is not known any more."""
        self.sent += 1
        missing = {sequence: 0 if sequence in self.held else count + 1 for sequence, count in self.known.items()}
        self.known = {sequence: count for sequence, count in missing.items() if count < FORGET_AFTER}
        return WorkerStatus(
            worker=name,
            model=MODEL,
            state="ready",
            credits=self.credits(),
            sent=self.sent,
            held=sorted(self.held),
            served=dict(self.served),
            pace=Pace(0.01, 0.00005, 0.0001) if self.sent > 1 else None,
            prefill_tokens=prefill_tokens,
            step_tokens=100,
        )

    def take(self, items: list[GrantItem]) -> list[GrantItem]:
        assert len(items) <= self.told.slots
        alone = [item for item in items if item.deaths >= ALONE_FROM]
        assert not alone or len(items) == 1
        assert alone or sum(len(item.ticket.prompt) // 4 + RESERVED for item in items) <= self.told.kv_tokens
        taken = [] if self.mood == "deaf" else items[::2] if self.mood == "refuses" else items
        taken = taken[: max(self.slots - len(self.held), 0)]
        self.held.update(item.sequence for item in taken)
        for item in taken:
            self.served[item.ticket.tenant] = self.served.get(item.ticket.tenant, 0) + len(item.ticket.prompt) // 4
        return taken


class Fleet(MemoryWorkers):
    """`takes` counts what was really taken, by ticket and attempt; `promised` are the tokens of it by tenant."""

    def __init__(self, names: list[str], slots: int = 4) -> None:
        super().__init__({})
        self.workers = {name: FleetWorker(slots) for name in names}
        self.takes: Counter[tuple[int, int]] = Counter()
        self.promised: Counter[str] = Counter()

    async def request(self, subject: str, data: bytes, timeout_s: float) -> Inbound:
        worker = self.workers[subject.removeprefix("hr.grant.")]
        items = decode(Grant, data).items
        await asyncio.sleep(0)
        taken = worker.take(items)
        self.takes.update((item.sequence, item.attempt) for item in taken)
        for item in taken:
            self.promised[item.ticket.tenant] += len(item.ticket.prompt) // 4
        if worker.mood in {"mute", "deaf"}:
            raise Unavailable("no answer")
        worker.known |= dict.fromkeys((item.sequence for item in taken), 0)
        return Inbound(subject, encode(GrantReply([item.sequence for item in taken], worker.credits())))

    def drop(self, sequence: int) -> None:
        """The owner of a journal wants no attempt of this ticket that was there before."""
        for worker in self.workers.values():
            worker.held.discard(sequence)

    def void(self, sequence: int) -> None:
        """The ticket was delivered anew: what the scheduler knew of its grant means nothing."""
        for worker in self.workers.values():
            worker.known.pop(sequence, None)
