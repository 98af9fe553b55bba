"""A worker between a scripted engine and its outboxes, and grants for it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.codec import pack_ids
from schemas.grant import Grant, GrantItem
from schemas.journal import JournalMessage
from schemas.placement import Placement
from schemas.ticket import AnswerSpec, EngineSampling, Ticket
from stages.inference.engine import Advance, EngineFacts, EngineLoad, EngineRequest, StepOutput
from stages.inference.held import Held
from stages.inference.outbox import PartitionOutbox
from stages.inference.worker import Worker, WorkerIdentity

FACTS = EngineFacts(vocab_size=1000, context_length=64, slots=4, kv_tokens=400, block_size=16, step_tokens=64)
PARTITIONS = 3
NOW = 1_700_000_000.0


@dataclass
class Scripted:
    """What the worker asked of the engine, and what became of the choices."""

    added: list[EngineRequest] = field(default_factory=list[EngineRequest])
    aborted: list[str] = field(default_factory=list[str])
    outcomes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    begun: list[str] = field(default_factory=list[str])

    def add(self, request: EngineRequest) -> None:
        self.added.append(request)

    def abort(self, ids: list[str]) -> None:
        self.aborted += ids

    def began(self, held: Held) -> None:
        self.begun.append(held.key)

    def ended(self, held: Held, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.outcomes.append((held.key, outcome))


class Holdings:
    """`clock` and `unix` are set by tests."""

    def __init__(self, facts: EngineFacts = FACTS, cancelled: Callable[[str], bool] = lambda _: False) -> None:
        self.clock = 100.0
        self.unix = NOW
        self.engine = Scripted()
        self.outboxes = [PartitionOutbox("w") for _ in range(PARTITIONS)]
        self.worker = Worker(
            WorkerIdentity("w", "m"),
            facts,
            self.engine,
            self.outboxes,
            self.engine,
            output_reserve=10,
            is_cancelled=cancelled,
            clock=lambda: self.clock,
            unix_clock=lambda: self.unix,
        )

    def step(self, *advances: Advance) -> None:
        self.clock += 0.1
        self.worker.advance(StepOutput(list(advances), EngineLoad(), 0.1))

    def store(self) -> list[JournalMessage]:
        """All partitions' journals take what waits; the worker is told."""
        messages: list[JournalMessage] = []
        for outbox in self.outboxes:
            while (message := outbox.take()) is not None:
                messages.append(message)
                self.worker.over(outbox.stored())
        return messages


def item(
    request: str = "r",
    *,
    sequence: int = 1,
    attempt: int = 10,
    choice: int = 0,
    prompt: list[int] | None = None,
    ids: list[int] | None = None,
    stored_at: float = NOW,
    partition: int = 0,
    max_tokens: int = 8,
    deaths: int = 0,
    tenant: str = "t",
    placement: Placement | None = None,
) -> GrantItem:
    ticket = Ticket(
        tenant=tenant,
        request=request,
        choice=choice,
        session="s",
        model="m",
        prompt=pack_ids([1, 2, 3] if prompt is None else prompt),
        sampling=EngineSampling(max_tokens=max_tokens, temperature=0.0),
        partition=partition,
        deadline_ms=60_000,
        answer=AnswerSpec(encoding="json"),
    )
    return GrantItem(
        ticket=ticket,
        attempt=attempt,
        ack=f"ack.{sequence}",
        sequence=sequence,
        stored_at=stored_at,
        ids=pack_ids(ids or []),
        deaths=deaths,
        placement=placement,
    )


def grant(*items: GrantItem) -> Grant:
    return Grant("scheduler", list(items))
