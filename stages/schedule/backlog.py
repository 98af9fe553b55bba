"""How much waits for a model's workers, how fast it goes, and so how long a ticket that comes now will wait."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp

from schemas.backlog import TENANTS
from stages.schedule.held import Held

MEMORY_S = 10.0
"""Busy time over which the rate is an average: several generations of answers, and a worker more shows soon."""

MEASURED_S = 1.0
"""Less busy time says nothing of a rate: it would be the grants of a few steps, times a large factor."""

STANDS_S = 30.0
"""Without a grant for so long a rate says nothing any more: what it refused would never show that things go on."""

STOOD_STILL_S = 1.0
"""A backlog is looked at several times a second: over a longer gap this process itself stood still."""


class BacklogMeter:
    """The rate (tokens/s) at which tickets were granted while others had to wait.

    Only then it is the workers' rate, not that at which tickets come. So what fills free workers at the first moment of
    a burst does not count, and neither does time without a worker.
    """

    def __init__(self) -> None:
        self.waiting = 0
        """Tickets that were left over after the last look."""
        self.workers = 0
        self._looked_at = 0.0
        self._granted_at = 0.0
        self._tokens = 0.0
        self._busy_s = 0.0

    def looked(self, now: float, *, waiting: int, granted: int, workers: int) -> bool:
        """A tick has granted so many tokens and left so many tickets. Returns whether a backlog began or ended."""
        passed = now - self._looked_at
        if self.waiting and self.workers and passed < STOOD_STILL_S:
            kept = exp(-passed / MEMORY_S)
            self._tokens = self._tokens * kept + granted
            self._busy_s = self._busy_s * kept + passed
        if granted:
            self._granted_at = now
        changed = (waiting > 0) != (self.waiting > 0)
        self._looked_at, self.waiting, self.workers = now, waiting, workers
        return changed

    @property
    def rate(self) -> float:
        """0: not known yet, or no longer: there is no worker, or nothing was granted for long."""
        stands = self._looked_at - self._granted_at > STANDS_S
        return self._tokens / self._busy_s if self.workers and self._busy_s >= MEASURED_S and not stands else 0.0

    def seconds(self, held: "HeldBack", pending: int, others: float) -> float:
        """Until a ticket that comes now is granted; -1: nobody knows.

        What is held here goes at our own rate. The `pending` tickets, which nobody has pulled yet and which are taken
        to be as long as those held, go at the rate of all schedulers, ours and that of the `others` together.
        """
        if not held.tickets:
            return 0.0
        rate = self.rate
        if rate <= 0 or rate + others <= 0:
            return -1.0
        return held.tokens / rate + pending * held.tokens / held.tickets / (rate + others)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What a scheduler holds and cannot grant: tickets, their tokens, and these by tenant, for the largest ones."""

    tickets: int = 0
    tokens: int = 0
    tenants: dict[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def of(cls, waiting: Iterable[Held], reserve: int) -> "HeldBack":
        """Prompts, ids so far, and `reserve` tokens of each answer: the measure in which grants count too."""
        tickets, tenants = 0, Counter[str]()
        for held in waiting:
            tickets += 1
            tenants[held.ticket.tenant] += held.kv_tokens(reserve)
        return cls(tickets, tenants.total(), dict(tenants.most_common(TENANTS)))
