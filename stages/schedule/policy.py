"""Which ticket goes to which worker, in which order. Pure functions: the state of one moment in, a plan out.

A policy is any function of type `Policy`; `most_free` is the one in use. It never gives a worker more than its
credits, and leaves out what fits nowhere.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

PASSED_OVER_S = 2.0
"""A ticket that fitted nowhere for so long has room kept for it: smaller ones would take it for ever."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A ticket that may be granted now. `priority`: lower goes first, as in vLLM. `sequence` is its order of arrival.

    `kv_tokens` is the KV cache it needs to start (prompt, ids so far, a little of the answer); times are seconds on
    the clock of `State.now`. Prompt and hashes are there for policies that place by prefix. `alone`: nothing else may
    go to its worker with it, which begins it once its engine is empty, whatever the size.
    """

    sequence: int
    tenant: str
    priority: int
    waiting_since: float
    deadline_at: float
    prompt_tokens: int
    kv_tokens: int
    generated_tokens: int = 0
    block_hashes: bytes = field(default=b"", repr=False)
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that can take something: its credits, less what was granted since, its load, its steps' time (s)."""

    worker: str
    slots: int
    kv_tokens: int
    kv_capacity: int = 0
    max_slots: int = 0
    running: int = 0
    waiting: int = 0
    step_tokens: int = 0
    step_s: float = 0.0
    role: str = "both"


@dataclass(frozen=True, slots=True)
class State:
    """One moment. `now` is the event loop's clock, in seconds."""

    now: float
    waiting: Sequence[Waiting]
    candidates: Sequence[Candidate]


Plan = dict[int, str]
"""Ticket (its sequence) → worker, in the order in which the tickets are to run."""

Policy = Callable[[State], Plan]


def most_free(state: State) -> Plan:
    """Priority, then arrival; each to the worker with the most free slots by then, then the most free KV cache.

    One that has to run alone goes to an idle worker, else to the least busy one, which makes room for it.
    """
    room = _Room(state.candidates)
    plan: Plan = {}
    for ticket in sorted(state.waiting, key=_ORDER):
        if not room:
            break
        worker = room.take_whole() if ticket.alone else room.take(ticket.kv_tokens)
        if worker:
            plan[ticket.sequence] = worker
        elif not ticket.alone and state.now - ticket.waiting_since > PASSED_OVER_S:
            room.keep_largest()
    return plan


_ORDER = attrgetter("priority", "sequence")


class _Room:
    """The free capacity of all workers while a plan is made, the most free one first."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._heap = [(-one.slots, -one.kv_tokens, one.worker) for one in candidates if one.slots > 0]
        heapq.heapify(self._heap)
        # Nothing will ever fit better than into an empty worker: that one decides for itself.
        self._empty = {one.worker: one.max_slots for one in candidates if one.max_slots}
        self._busy = {one.worker: (one.max_slots - one.slots, one.running + one.waiting) for one in candidates}
        self._too_large: float = float("inf")
        self._kept = False

    def __bool__(self) -> bool:
        return bool(self._heap)

    def take(self, kv_tokens: int) -> str:
        """The worker that gets a ticket of this size, "" where it fits nowhere."""
        if kv_tokens >= self._too_large:
            return ""
        passed: list[tuple[int, int, str]] = []
        found = ""
        while self._heap and not found:
            entry = heapq.heappop(self._heap)
            if self._fits(kv_tokens, entry):
                found = entry[2]
                self._busy.pop(found, None)
                self._put(entry[0] + 1, entry[1] + kv_tokens, found)
            else:
                passed.append(entry)
        for entry in passed:
            heapq.heappush(self._heap, entry)
        if not found:
            self._too_large = kv_tokens
        return found

    def take_whole(self) -> str:
        """The least busy of the workers that this plan gives nothing to, for a ticket alone; "" where there is none."""
        untouched = [entry for entry in self._heap if entry[2] in self._busy]
        if not untouched:
            return ""
        chosen = min(untouched, key=lambda entry: (self._busy[entry[2]], entry))
        self._heap.remove(chosen)
        heapq.heapify(self._heap)
        return chosen[2]

    def keep_largest(self) -> None:
        """Takes the worker with the most free KV cache out of this plan, once: its room is saved up."""
        if self._heap and not self._kept:
            self._kept = True
            self._heap.remove(min(self._heap, key=lambda entry: entry[1]))
            heapq.heapify(self._heap)

    def _fits(self, kv_tokens: int, entry: tuple[int, int, str]) -> bool:
        return kv_tokens <= -entry[1] or -entry[0] == self._empty.get(entry[2])

    def _put(self, slots: int, kv_tokens: int, worker: str) -> None:
        if slots < 0:
            heapq.heappush(self._heap, (slots, min(kv_tokens, 0), worker))
