"""Which ticket goes to which worker, in which order: a pure function's types, the state of a moment in, a plan out.

`cheapest.cheapest` is the policy in use. No policy gives a worker more than its credits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

Matches = Mapping[str, int]
"""Worker → how many blocks at the beginning of a prompt it has; workers without the first one are left out."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A ticket that may be granted now. `priority`: lower goes first, as in vLLM. `sequence` is its order of arrival.

    `kv_tokens` is the KV cache it needs to start (prompt, ids so far, a little of the answer); times are seconds on
    the clock of `State.now`. `alone`: nothing else may go to its worker with it, which begins it once its engine is
    empty, whatever the size. `held_since` is when a plan first held it for a better worker (`Plan.held`).
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
    held_since: float = inf

    @property
    def length(self) -> int:
        """Tokens of which the KV cache has to be there before the next one can be computed."""
        return self.prompt_tokens + self.generated_tokens


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker: its credits, less what was granted since, its load, and its pace.

    A step of it takes `base_s + decode_s · decoding + prefill_s · prompt tokens`. `open`: it may be offered something
    now, no grant to it is under way. `prefill_tokens` are granted to it and not computed yet, `running` are its
    sequences with these. `free_in_s` is when the next of its sequences ends, about.
    """

    worker: str
    slots: int
    kv_tokens: int
    kv_capacity: int = 0
    max_slots: int = 0
    running: int = 0
    step_tokens: int = 0
    role: str = "both"
    open: bool = True
    prefill_tokens: int = 0
    base_s: float = 0.01
    decode_s: float = 0.00005
    prefill_s: float = 0.00005
    free_in_s: float = 0.0


def _nothing(_: Waiting) -> Matches:
    return {}


@dataclass(frozen=True, slots=True)
class State:
    """One moment. `now` is the event loop's clock, in seconds.

    `levels` and `weights` are those of `fairness.Tenants`; `matches` tells how many blocks (of `block_tokens` tokens)
    of a ticket's prompt which worker has. `long_tokens`: a prompt of which more has to be computed is a long one. The
    tenants `ahead` leave a worker's last slots to others.
    """

    now: float
    waiting: Sequence[Waiting]
    candidates: Sequence[Candidate]
    levels: Mapping[str, float] = field(default_factory=dict[str, float])
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    matches: Callable[[Waiting], Matches] = _nothing
    block_tokens: int = 0
    long_tokens: int = 1 << 40
    ahead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a ticket goes, and why: predicted seconds to its first token, tokens of it that are cached, the next best.

    `workers` could have taken it, as far as they were looked at.
    """

    worker: str
    cached: int = 0
    cost_s: float = 0.0
    workers: int = 1
    rival: str = ""
    rival_cached: int = 0
    rival_cost_s: float = 0.0


@dataclass(slots=True)
class Plan:
    """`grants`: ticket (its sequence) → where it goes, in the order in which they are to run. `held`: those that wait
    though somebody could take them now, since it is about to be cheaper elsewhere.
    """

    grants: dict[int, Choice] = field(default_factory=dict[int, Choice])
    held: list[int] = field(default_factory=list[int])


Policy = Callable[[State], Plan]
