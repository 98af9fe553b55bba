"""One attempt as a worker holds it, from its grant until the journal has all of it."""

from dataclasses import dataclass

from schemas.codec import unpack_ids
from schemas.faults import Fault
from schemas.grant import GrantItem
from schemas.journal import End, Released, WorkerTimes
from schemas.poison import ALONE_FROM
from stages.inference.engine import EngineRequest
from stages.inference.outbox import PartitionOutbox


@dataclass(slots=True)
class Held:
    """`name` is unique over all attempts. Times are monotonic seconds.

    It runs while the engine has it, and is done once nothing more will come of it; before and between it is parked.
    `counted` are the tokens of KV cache that are set aside for it, `told` those of the `produced` ones that are counted
    as served.
    """

    item: GrantItem
    name: str
    outbox: PartitionOutbox
    before: int
    taken_at: float
    taken_unix: float
    length: int
    running: bool = False
    done: bool = False
    produced: int = 0
    told: int = 0
    counted: int = 0
    scheduled_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
    cached_tokens: int = 0

    @property
    def key(self) -> str:
        return self.item.ticket.key

    @property
    def alone(self) -> bool:
        """Whether it has to run alone."""
        return self.item.deaths >= ALONE_FROM

    @property
    def expected_cached(self) -> int:
        """Tokens of its context that its scheduler expected in the KV cache; 0 where that knew nothing."""
        return expected_cached(self.item)

    @property
    def deadline(self) -> float:
        """Unix seconds, counted from the broker's own time stamp of the ticket."""
        return self.item.stored_at + self.item.ticket.deadline_ms / 1000

    def times(self) -> WorkerTimes:
        return WorkerTimes(
            scheduled=max(self.scheduled_at - self.taken_at, 0.0),
            first_token=max(self.first_at - self.taken_at, 0.0),
            finished=max(self.last_at - self.taken_at, 0.0),
            cached_tokens=self.cached_tokens,
            schedule=self.item.schedule,
            placement=self.item.placement,
        )

    def past_deadline(self) -> Fault:
        left_s = self.item.ticket.deadline_ms / 1000  # a little less than was asked for: preprocess took its part
        return Fault("deadline", f"not finished within {round(left_s, 1) or left_s:g} s")

    def released(self, worker: str, *, died: bool) -> Released:
        return Released(self.key, self.item.ticket.choice, self.item.attempt, died=died, worker=worker)

    def end(self, fault: Fault) -> End:
        ticket = self.item.ticket
        return End(
            key=self.key,
            choice=ticket.choice,
            session=ticket.session,
            fault=fault,
            encoding=ticket.answer.encoding,
            ack=self.item.ack,
            attempt=self.item.attempt,
        )


def expected_cached(item: GrantItem) -> int:
    """As of `Held`, of what is not held yet."""
    return max(item.placement.cached, 0) if item.placement is not None else 0


def request_of(item: GrantItem) -> EngineRequest:
    """The engine's request for one granted ticket, under a name that no other attempt has."""
    ticket = item.ticket
    return EngineRequest(
        id=f"{ticket.key}/{ticket.choice}/{item.attempt}",
        prompt=ticket.prompt_ids(),
        sampling=ticket.sampling,
        generated=unpack_ids(item.ids),
        cache_salt=ticket.cache_salt,
        priority=ticket.priority,
    )
