"""The tickets that workers took from this scheduler: to be handed to others when a worker falls silent."""

from collections.abc import Container
from dataclasses import dataclass

from schemas.control import WorkerStatus
from schemas.journal import Released

FORGET_AFTER = 2
"""Heartbeats in a row that do not list a ticket: then the worker is done with it."""

SETTLE_S = 0.3
"""A heartbeat that comes sooner after the reply may have been written before the grant."""


@dataclass(slots=True)
class Granted:
    """One attempt of a ticket, kept alive by the worker now. `granted_at` is on the event loop's clock (s)."""

    sequence: int
    ack_subject: str
    worker: str
    granted_at: float
    key: str
    choice: int
    partition: int
    attempt: int
    missing: int = 0

    def released(self, last: WorkerStatus | None) -> Released:
        """What the journal is told when the worker has fallen silent after this last heartbeat.

        The attempt died with it, unless the worker had not begun it, was on its way out, or had finished it: a last
        heartbeat that is younger than the grant and does not list it says so. None: the silence proves nothing.
        """
        spared = last is None or last.state == "draining" or self.sequence in last.parked or self.missing > 0
        return Released(self.key, self.choice, self.attempt, died=not spared, worker=self.worker)


class Accused:
    """What seems to have died with each of the last workers that fell silent, in case one is heard again."""

    def __init__(self, workers: int = 64) -> None:
        self._limit = workers
        self._of_worker: dict[str, list[Granted]] = {}

    def put(self, worker: str, granted: list[Granted]) -> None:
        """Of a worker that has just fallen silent."""
        if granted:
            self._of_worker[worker] = granted
        if len(self._of_worker) > self._limit:
            del self._of_worker[next(iter(self._of_worker))]

    def pop(self, worker: str) -> list[Granted]:
        """Everything of this worker, once."""
        return self._of_worker.pop(worker, [])


class GrantedTickets:
    """One entry a ticket; bounded by the slots of the workers."""

    def __init__(self) -> None:
        self._by_worker: dict[str, dict[int, Granted]] = {}
        self._worker_of: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._worker_of)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._worker_of

    def add(self, granted: Granted) -> None:
        self.forget(granted.sequence)
        self._worker_of[granted.sequence] = granted.worker
        self._by_worker.setdefault(granted.worker, {})[granted.sequence] = granted

    def forget(self, sequence: int) -> bool:
        """Its delivery is void (the ticket was delivered anew). A NAK for it would hit whoever has it now.

        Returns whether it was known.
        """
        worker = self._worker_of.pop(sequence, None)
        if worker is None:
            return False
        tickets = self._by_worker[worker]
        del tickets[sequence]
        if not tickets:
            del self._by_worker[worker]
        return True

    def heard(self, worker: str, held: Container[int], now: float) -> None:
        """A heartbeat lists what the worker holds: forgets what it is done with."""
        done: list[int] = []
        for granted in self._by_worker.get(worker, {}).values():
            if granted.sequence in held:
                granted.missing = 0
            elif now - granted.granted_at >= SETTLE_S:
                granted.missing += 1
                if granted.missing >= FORGET_AFTER:
                    done.append(granted.sequence)
        for sequence in done:
            self.forget(sequence)

    def take_back(self, worker: str) -> list[Granted]:
        """Everything that a worker holds of ours, forgotten here."""
        tickets = list(self._by_worker.pop(worker, {}).values())
        for granted in tickets:
            del self._worker_of[granted.sequence]
        return tickets

    def clear(self) -> None:
        self._by_worker.clear()
        self._worker_of.clear()
