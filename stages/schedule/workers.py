"""What a scheduler knows of the workers of one model: from heartbeats, from replies, and from what it granted since."""

from collections.abc import Iterator

from schemas.control import WorkerStatus
from schemas.grant import Credits
from stages.schedule.policy import Candidate


class Worker:
    """One worker. Its credits are those it reported last, less what is on its way to it.

    After an unanswered or partly refused grant it is `shut` until its next heartbeat: its own view differs from ours.
    """

    def __init__(self, status: WorkerStatus, now: float) -> None:
        self.id = status.worker
        self._placed_slots = 0
        self._placed_kv = 0
        self._placed_alone = 0
        self._granting = 0
        self._shut = False
        self.report(status, now)

    def report(self, status: WorkerStatus, now: float) -> None:
        """A heartbeat."""
        self.status = status
        self.credits = status.credits
        self.seen_at = now
        self._shut = False

    @property
    def takes(self) -> bool:
        """Whether it may be offered anything now; while a grant is on its way, the next one gathers."""
        return self.status.state == "ready" and not (self._shut or self._granting or self._placed_alone)

    def place(self, kv_tokens: int, *, alone: bool = False) -> None:
        """A ticket is chosen for it: its room is ours until `unplace`, the whole worker's where it runs `alone`."""
        self._placed_slots += 1
        self._placed_kv += kv_tokens
        self._placed_alone += alone

    def unplace(self, kv_tokens: int, *, alone: bool = False) -> None:
        self._placed_slots -= 1
        self._placed_kv -= kv_tokens
        self._placed_alone -= alone

    def granting(self) -> None:
        self._granting += 1

    def granted(self, room: Credits | None, *, all_taken: bool) -> None:
        """The reply to a grant is here; None: there was none in time."""
        self._granting -= 1
        if room is not None:
            self.credits = room
        self._shut = self._shut or room is None or not all_taken

    def candidate(self) -> Candidate:
        status = self.status
        return Candidate(
            worker=self.id,
            slots=max(self.credits.slots - self._placed_slots, 0),
            kv_tokens=max(self.credits.kv_tokens - self._placed_kv, 0),
            kv_capacity=status.kv_capacity,
            max_slots=status.max_slots,
            running=status.running,
            waiting=status.waiting,
            step_tokens=status.step_tokens,
            step_s=status.step_s,
            role=status.role,
        )


class Workers:
    """The workers of one model that were heard of within `silent_s` seconds."""

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
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
            known = self._workers[status.worker] = Worker(status, now)
        else:
            known.report(status, now)
        return known

    def candidates(self) -> list[Candidate]:
        """The workers with a free slot that may be offered something now."""
        return [one for one in (worker.candidate() for worker in self if worker.takes) if one.slots > 0]

    def fall_silent(self, now: float) -> list[Worker]:
        """Forgets those without a heartbeat for too long, and returns them."""
        silent = [worker for worker in self if now - worker.seen_at > self._silent_s]
        for worker in silent:
            del self._workers[worker.id]
        return silent
