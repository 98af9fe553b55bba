"""The usual policies, to compare with: each ticket in the order of arrival, to a worker that has room."""

from bisect import bisect
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random

from stages.schedule.policy import Candidate, Choice, Plan, Policy, State, Waiting

Choose = Callable[[Waiting, Sequence["Room"]], "Room"]
POINTS = 64


class Room:
    """What is left of one worker within a plan."""

    __slots__ = ("candidate", "kv_tokens", "load", "slots", "worker")

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.worker = candidate.worker
        self.slots = candidate.slots
        self.kv_tokens = candidate.kv_tokens
        self.load = candidate.running

    def holds(self, ticket: Waiting) -> bool:
        return self.slots > 0 and (ticket.kv_tokens <= self.kv_tokens or self.slots == self.candidate.max_slots)

    def take(self, ticket: Waiting) -> None:
        self.slots -= 1
        self.load += 1
        self.kv_tokens -= ticket.kv_tokens


def _in_turn(choose: Choose) -> Policy:
    """By arrival; one that fits nowhere holds up the others, as a queue does."""

    def policy(state: State) -> Plan:
        plan, rooms = Plan(), [Room(one) for one in state.candidates]
        for ticket in sorted(state.waiting, key=lambda one: one.sequence):
            fitting = [room for room in rooms if room.holds(ticket)]
            if not fitting:
                break
            room = choose(ticket, fitting)
            room.take(ticket)
            plan.grants[ticket.sequence] = Choice(room.worker)
        return plan

    return policy


def round_robin() -> Policy:
    last = ""

    def choose(_: Waiting, rooms: Sequence[Room]) -> Room:
        nonlocal last
        names = [int(room.worker[1:]) for room in rooms]
        after = int(last[1:]) + 1 if last else 0
        found = min(range(len(rooms)), key=lambda index: (names[index] < after, names[index]))
        last = rooms[found].worker
        return rooms[found]

    return _in_turn(choose)


def least_load() -> Policy:
    return _in_turn(lambda _, rooms: min(rooms, key=lambda room: room.load))


def two_choices(seed: int = 1) -> Policy:
    random = Random(seed)

    def choose(_: Waiting, rooms: Sequence[Room]) -> Room:
        return min(random.sample(rooms, min(2, len(rooms))), key=lambda room: room.load)

    return _in_turn(choose)


def hashing(head_blocks: int) -> Policy:
    """Consistent hashing of the first blocks of a prompt; the next worker on the ring where that one is full."""
    ring: list[tuple[int, str]] = []
    known: set[str] = set()

    def choose(ticket: Waiting, rooms: Sequence[Room]) -> Room:
        by_name = {room.worker: room for room in rooms}
        for name in by_name.keys() - known:
            known.add(name)
            ring.extend((_point(f"{name}/{number}".encode()), name) for number in range(POINTS))
            ring.sort()
        key = ticket.block_hashes[: 8 * head_blocks] or str(ticket.sequence).encode()
        start = bisect(ring, (_point(key), ""))
        for _, name in ring[start:] + ring[:start]:
            if name in by_name:
                return by_name[name]
        raise AssertionError("a ring of all workers has those with room")

    return _in_turn(choose)


def _point(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")
