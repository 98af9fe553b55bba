"""Tickets, and what stands in for the broker: a journal, a work queue and workers in memory."""

import asyncio
import time
from collections.abc import Callable

from broker.connection import BrokerError, Inbound, Unavailable
from broker.work_queue import Delivery
from schemas.codec import decode, encode, pack_ids
from schemas.control import WorkerState, WorkerStatus
from schemas.grant import Credits, Grant, GrantItem, GrantReply
from schemas.journal import End, JournalMessage, Open, Released
from schemas.ticket import EngineSampling, Ticket

MODEL = "tiny"


def ticket(
    request: str = "r",
    *,
    tenant: str = "t",
    choice: int = 0,
    prompt: int = 8,
    max_tokens: int = 16,
    deadline_ms: int = 60_000,
    priority: int = 0,
) -> Ticket:
    """One choice with `prompt` ids."""
    return Ticket(
        tenant=tenant,
        request=request,
        choice=choice,
        session="s",
        model=MODEL,
        prompt=pack_ids(range(prompt)),
        sampling=EngineSampling(max_tokens=max_tokens),
        partition=0,
        deadline_ms=deadline_ms,
        priority=priority,
    )


def delivery(of: Ticket | bytes, sequence: int = 1, *, deliveries: int = 1, age_s: float = 0.0) -> Delivery:
    """That ticket as the work queue hands it out."""
    return Delivery(
        data=of if isinstance(of, bytes) else encode(of),
        subject=f"hr.ticket.{MODEL}.t",
        sequence=sequence,
        deliveries=deliveries,
        stored_at=time.time() - age_s,
        ack_subject=f"$JS.ACK.{sequence}.{deliveries}",
    )


def status(
    worker: str = "w1",
    *,
    slots: int = 4,
    kv_tokens: int = 10_000,
    state: WorkerState = "ready",
    held: list[int] | None = None,
    parked: list[int] | None = None,
    sent: int = 1,
    max_slots: int = 0,
) -> WorkerStatus:
    """A heartbeat."""
    return WorkerStatus(
        worker=worker,
        model=MODEL,
        state=state,
        credits=Credits(slots, kv_tokens),
        sent=sent,
        held=held or [],
        parked=parked or [],
        max_slots=max_slots,
    )


class MemoryJournal:
    """Stores messages of every partition in one order; `fail` and `gate` hold a partition up."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, JournalMessage]] = []
        self.fail: dict[int, BrokerError] = {}
        self.gate: dict[int, asyncio.Event] = {}
        self.calls = 0

    async def append(self, partition: int, message: JournalMessage, timeout_s: float = 5) -> int:
        self.calls += 1
        await asyncio.sleep(0)
        if partition in self.gate:
            await self.gate[partition].wait()
        if partition in self.fail:
            raise self.fail[partition]
        self.messages.append((partition, message))
        return len(self.messages)

    @property
    def opens(self) -> list[Open]:
        return [entry for _, message in self.messages for entry in message.opens]

    @property
    def released(self) -> list[Released]:
        return [entry for _, message in self.messages for entry in message.released]

    @property
    def ends(self) -> list[End]:
        return [entry for _, message in self.messages for entry in message.ends]


class MemoryQueue:
    """Remembers what became of every delivery."""

    def __init__(self) -> None:
        self.let_go_of: list[int] = []

    def let_go(self, delivery: Delivery) -> None:
        self.let_go_of.append(delivery.sequence)


class MemoryWorkers:
    """Answers grants as workers would: takes what there are slots for. `silent` ones take it and do not answer."""

    max_payload = 1_000_000

    def __init__(self, slots: dict[str, int]) -> None:
        self.slots = slots
        self.grants: list[tuple[str, Grant]] = []
        self.taken: list[GrantItem] = []
        self.silent: set[str] = set()
        self.before_reply: Callable[[], None] = lambda: None

    @property
    def granted(self) -> list[GrantItem]:
        return [item for _, grant in self.grants for item in grant.items]

    async def request(self, subject: str, data: bytes, timeout_s: float) -> Inbound:
        worker = subject.removeprefix("hr.grant.")
        grant = decode(Grant, data)
        self.grants.append((worker, grant))
        await asyncio.sleep(0)
        self.before_reply()
        if worker in self.silent:
            raise Unavailable("no answer")
        taken = grant.items[: self.slots[worker]]
        self.taken += taken
        self.slots[worker] -= len(taken)
        reply = GrantReply([item.sequence for item in taken], Credits(self.slots[worker], 10_000))
        return Inbound(subject, encode(reply))
