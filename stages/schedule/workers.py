"""What a scheduler knows of the workers of one model: from heartbeats, from replies, and from what it granted since."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from msgspec.structs import astuple

from schemas.control import Pace, WorkerStatus
from schemas.grant import Credits
from stages.schedule.policy import Candidate

UNKNOWN_PACE = Pace(0.01, 0.00005, 0.00005)
"""Of a GPU that has not said yet how fast it is."""


UNKNOWN_STEP_TOKENS = 2048

MOST_SERVED = 10_000_000
"""Tokens between two heartbeats of a worker: more than that is a mistake."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a ticket takes of a worker: a slot, KV cache, prefill; the whole worker, where it has to run `alone`."""

    kv_tokens: int
    prefill_tokens: int
    alone: bool = False


class Worker:
    """One worker. Its credits are those it reported last, less what is on its way to it.

    Until it says how fast it is, it is taken to be of `pace`. After an unanswered or partly refused grant it is `shut`
    until its next heartbeat: its own view differs from ours.
    """

    def __init__(self, status: WorkerStatus, now: float, pace: Pace = UNKNOWN_PACE) -> None:
        self.id = status.worker
        self.pace = pace
        self._placed_slots = 0
        self._placed_kv = 0
        self._placed_prefill = 0
        self._placed_alone = 0
        self._granting = 0
        self._shut = False
        self.silent = False
        """It was not heard of for too long: what it has is others' by now."""
        self.report(status, now)

    def report(self, status: WorkerStatus, now: float) -> None:
        """A heartbeat."""
        self.status = status
        self.credits = status.credits
        self.pace = status.pace or self.pace
        self.seen_at = now
        self._prefill, self._prefill_at = float(status.prefill_tokens), now
        self._shut = False

    @property
    def open(self) -> bool:
        """Whether it may be offered anything now; while a grant is on its way, the next one gathers."""
        return self.status.state == "ready" and not (self._shut or self._granting or self._placed_alone)

    def place(self, room: Room) -> None:
        """A ticket is chosen for it: this room is ours until `unplace`."""
        self._placed_slots += 1
        self._placed_kv += room.kv_tokens
        self._placed_prefill += room.prefill_tokens
        self._placed_alone += room.alone

    def unplace(self, room: Room) -> None:
        self._placed_slots -= 1
        self._placed_kv -= room.kv_tokens
        self._placed_prefill -= room.prefill_tokens
        self._placed_alone -= room.alone

    def took(self, room: Room, now: float) -> None:
        """It has a ticket more. The reply says what room is left; what it has to prefill is counted here."""
        self._prefill, self._prefill_at = self._prefill_left(now) + room.prefill_tokens, now

    def granting(self) -> None:
        self._granting += 1

    def granted(self, room: Credits | None, *, all_taken: bool) -> None:
        """The reply to a grant is here; None: there was none in time."""
        self._granting -= 1
        if room is not None:
            self.credits = room
        self._shut = self._shut or room is None or not all_taken

    def candidate(self, now: float) -> Candidate:
        status, pace = self.status, self.pace
        slots = max(self.credits.slots - self._placed_slots, 0)
        return Candidate(
            worker=self.id,
            slots=slots,
            kv_tokens=max(self.credits.kv_tokens - self._placed_kv, 0),
            kv_capacity=status.kv_capacity,
            max_slots=status.max_slots,
            running=max(status.max_slots - slots, status.running) if status.max_slots else status.running,
            step_tokens=status.step_tokens,
            role=status.role,
            open=self.open,
            prefill_tokens=int(self._prefill_left(now)) + self._placed_prefill,
            base_s=pace.base,
            decode_s=pace.decode,
            prefill_s=pace.prefill,
            free_in_s=max(status.free_in_s - (now - self.seen_at), 0.0),
        )

    def _prefill_left(self, now: float) -> float:
        """At its pace, in full steps, it has computed some of what it had to."""
        pace, tokens = self.pace, self.status.step_tokens or UNKNOWN_STEP_TOKENS
        step_s = pace.base + pace.decode * self.status.running + pace.prefill * tokens
        computed = (now - self._prefill_at) / step_s * tokens if step_s > 0 else self._prefill
        return max(self._prefill - computed, 0.0)


class Workers:
    """The workers of one model that were heard of within `silent_s` seconds."""

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self.lost = 0
        """Fell silent although they had not said that they were going."""
        self._workers: dict[str, Worker] = {}

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def get(self, worker: str) -> Worker | None:
        return self._workers.get(worker)

    def heard(self, status: WorkerStatus, now: float) -> Worker:
        """A heartbeat has come, the first one too."""
        known = self._workers.get(status.worker)
        if known is None:
            known = self._workers[status.worker] = Worker(status, now, self._usual_pace())
        else:
            known.report(status, now)
        return known

    @property
    def ready(self) -> int:
        """How many take tickets. For any thread."""
        return sum(worker.status.state == "ready" for worker in list(self._workers.values()))

    def served_since(self, status: WorkerStatus) -> list[tuple[str, int]]:
        """Tokens that a worker has served of each tenant since its heartbeat before this one."""
        known = self._workers.get(status.worker)
        if known is None:
            return []  # all of it may have been before our time
        before = known.status.served
        counts = ((tenant, count - before.get(tenant, 0)) for tenant, count in status.served.items())
        return [(tenant, min(more, MOST_SERVED)) for tenant, more in counts if more > 0]

    def _usual_pace(self) -> Pace:
        """Of a worker that has not said how fast it is: as the others are, or it would draw too much, or nothing."""
        known = [worker.status.pace for worker in self if worker.status.pace is not None]
        if not known:
            return UNKNOWN_PACE
        return Pace(*(fmean(values) for values in zip(*map(astuple, known), strict=True)))

    def candidates(self, now: float) -> list[Candidate]:
        """The workers that take tickets, those too that are full or are being granted something just now."""
        return [worker.candidate(now) for worker in self if worker.status.state == "ready"]

    def fall_silent(self, now: float) -> list[Worker]:
        """Forgets those without a heartbeat for too long, and returns them."""
        silent = [worker for worker in self if now - worker.seen_at > self._silent_s]
        for worker in silent:
            worker.silent = True
            self.lost += worker.status.state != "draining"
            del self._workers[worker.id]
        return silent
