"""States of one moment for the policy: tickets, workers, and whose cache holds what."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from stages.schedule.cheapest import cheapest
from stages.schedule.policy import Candidate, Plan, State, Waiting
from stages.schedule.prefixes import Prefixes, packed

BLOCK = 16
NO_LIMIT = 1 << 40

Caches = Mapping[str, Iterable[int]]
"""Worker → the blocks that it has."""


def waiting(
    sequence: int,
    *,
    tenant: str = "t",
    priority: int = 0,
    tokens: int = 10,
    since: float = 0.0,
    deadline: float = 1e9,
    blocks: Iterable[int] = (),
    alone: bool = False,
    held_since: float = inf,
) -> Waiting:
    return Waiting(
        sequence=sequence,
        tenant=tenant,
        priority=priority,
        waiting_since=since,
        deadline_at=deadline,
        prompt_tokens=tokens,
        kv_tokens=tokens,
        block_hashes=packed(blocks),
        alone=alone,
        held_since=held_since,
    )


def chat(sequence: int, blocks: Sequence[int], *, more: int = 8, held_since: float = inf) -> Waiting:
    """A prompt of these full blocks and a few tokens more."""
    return waiting(sequence, tokens=len(blocks) * BLOCK + more, blocks=blocks, held_since=held_since)


def worker(
    name: str,
    *,
    slots: int = 8,
    kv_tokens: int = 1_000_000,
    max_slots: int = 0,
    running: int = 0,
    prefill: int = 0,
    opened: bool = True,
    free_in_s: float = 0.0,
    step_tokens: int = 100_000,
) -> Candidate:
    """With steps so large that nothing but what a test is about limits what it takes."""
    return Candidate(
        name,
        slots=slots,
        kv_tokens=kv_tokens,
        max_slots=max_slots,
        running=running,
        prefill_tokens=prefill,
        open=opened,
        free_in_s=free_in_s,
        step_tokens=step_tokens,
    )


def plan(
    tickets: Sequence[Waiting],
    workers: Sequence[Candidate],
    now: float = 0.0,
    *,
    caches: Caches | None = None,
    long_tokens: int = NO_LIMIT,
    weights: Mapping[str, float] | None = None,
    levels: Mapping[str, float] | None = None,
    ahead: Iterable[str] = (),
) -> Plan:
    prefixes = Prefixes(1 << 20)
    for name, blocks in (caches or {}).items():
        prefixes.stored(name, blocks)
    return cheapest(
        State(
            now,
            tickets,
            workers,
            levels=levels or {},
            weights=weights or {},
            matches=lambda ticket: prefixes.match(ticket.block_hashes),
            block_tokens=BLOCK,
            long_tokens=long_tokens,
            ahead=frozenset(ahead),
        )
    )


def places(made: Plan) -> dict[int, str]:
    """Ticket → worker, in the order in which they are to run."""
    return {sequence: choice.worker for sequence, choice in made.grants.items()}
