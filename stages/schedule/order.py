"""In which order tickets run: priority class, then fair between tenants, then earliest deadline, then arrival."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stages.schedule.policy import Waiting

AGEING_S = 30.0
"""A ticket rises by one class whenever it has waited for so long, up to the best there is: no class starves."""


LONGEST_AGEING_S = 120.0
"""After so long a ticket is of the best class that waits, however far below it began."""


@dataclass(slots=True)
class _Line:
    """One tenant's tickets of one class, the next one at the end."""

    tenant: str
    level: float
    tickets: list[Waiting] = field(default_factory=list[Waiting])


class Turns:
    """The tickets of one moment, one after the other; whoever is `given` something has to wait longer for the next."""

    def __init__(
        self, waiting: Sequence[Waiting], now: float, levels: Mapping[str, float], weights: Mapping[str, float]
    ) -> None:
        self._weights = weights
        self._classes = _by_class(waiting, now)
        self._order = sorted(self._classes, reverse=True)
        self._levels = dict(levels)
        self._heap: list[tuple[float, int, _Line]] = []
        self._tenant = ""
        self.rank = 0
        """The class of the ticket that came last."""

    def next(self) -> Waiting | None:
        """The ticket whose turn it is, each once; None where there is none left."""
        while not self._heap:
            if not self._order:
                return None
            self.rank = self._order.pop()
            self._open(self._classes[self.rank])
        line = self._heap[0][2]
        ticket = line.tickets.pop()
        self._tenant = ticket.tenant
        if not line.tickets:
            heapq.heappop(self._heap)
        return ticket

    def skip_line(self) -> None:
        """No more tickets of the tenant that was next last, in its class."""
        if self._heap and self._heap[0][2].tenant == self._tenant:
            heapq.heappop(self._heap)

    def given(self, ticket: Waiting) -> None:
        """The ticket that came last was given a place: its tenant has had so much more."""
        level = self._levels.get(ticket.tenant, 0.0) + ticket.kv_tokens / self._weights.get(ticket.tenant, 1.0)
        self._levels[ticket.tenant] = level
        if self._heap and self._heap[0][2].tenant == ticket.tenant:
            line = self._heap[0][2]
            line.level = level
            heapq.heapreplace(self._heap, (level, line.tickets[-1].sequence, line))

    def _open(self, tenants: dict[str, list[Waiting]]) -> None:
        for tenant, tickets in tenants.items():
            tickets.sort(key=_urgency, reverse=True)
            line = _Line(tenant, self._levels.get(tenant, 0.0), tickets)
            self._heap.append((line.level, tickets[-1].sequence, line))
        heapq.heapify(self._heap)


def _urgency(ticket: Waiting) -> tuple[int, int]:
    """Deadlines within a second are one: they are known no better, and those of one burst are to go as they came."""
    return int(ticket.deadline_at), ticket.sequence


def _by_class(waiting: Sequence[Waiting], now: float) -> dict[int, dict[str, list[Waiting]]]:
    classes: dict[int, dict[str, list[Waiting]]] = {}
    best = min((ticket.priority for ticket in waiting), default=0)
    for ticket in waiting:
        waited_s = now - ticket.waiting_since
        aged = max(ticket.priority - int(waited_s / AGEING_S), best) if waited_s < LONGEST_AGEING_S else best
        classes.setdefault(aged, {}).setdefault(ticket.tenant, []).append(ticket)
    return classes
