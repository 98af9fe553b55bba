"""What is left of one worker while a plan is made, and what a ticket costs there."""

from stages.schedule.policy import Candidate

BURDEN_TOKENS = 16
"""A new sequence shares so many decode steps, about, with those that run: what it pays for a full batch."""

MISS_WEIGHT = 2.0
"""A block that has to be computed costs twice: its own time, and that of the one that it drives out of the cache."""

PREFILL_STEPS = 2
PREFILL_S = 0.05
"""So much prefill at most lies ahead in an engine, whichever is more: what waits there can no longer be moved."""

RESERVED = 32
"""One of so many slots of a worker waits for tenants that come, while others ask for all they can get."""

REGRANT_S = 0.005
"""How long a worker is busy with a grant that is under way."""


class Seat:
    """One worker within a plan. `tokens` are to be prefilled there, `taken` tickets went there in this plan."""

    __slots__ = ("_load_s", "_prefill_limit", "decoding", "kv_tokens", "open", "slots", "taken", "tokens", "worker")

    def __init__(self, candidate: Candidate) -> None:
        self.worker = candidate
        self.slots = candidate.slots
        self.kv_tokens = candidate.kv_tokens
        self.tokens = candidate.prefill_tokens
        self.decoding = candidate.running
        self.open = candidate.open
        self.taken = 0
        self._load_s = -1.0
        by_time = PREFILL_S / candidate.prefill_s if candidate.prefill_s > 0 else 0.0
        self._prefill_limit = max(PREFILL_STEPS * candidate.step_tokens, by_time)

    @property
    def load_s(self) -> float:
        """Of a ticket without a prompt: what is prefilled before it, and what it waits for in each of its steps."""
        if self._load_s < 0:
            one = self.worker
            self._load_s = self.tokens * self._token_s() + BURDEN_TOKENS * one.decode_s * self.decoding
        return self._load_s

    def first_token_s(self, missing: int) -> float:
        """Predicted, of a ticket of which the worker has to compute so many tokens."""
        one = self.worker
        return (self.tokens + missing) * self._token_s() + one.base_s + one.decode_s * self.decoding

    def worth_s(self, missing: int) -> float:
        """By which places are compared: the least is the best for all."""
        return self.load_s + MISS_WEIGHT * missing * self.worker.prefill_s

    @property
    def free(self) -> bool:
        """Whether it takes anything now."""
        return self.open and self.slots > 0 and (self.tokens <= 0 or self.tokens < self._prefill_limit)

    @property
    def roomy(self) -> bool:
        """Whether it takes something of a tenant that is ahead of others."""
        return self.free and self.slots > self.worker.max_slots // RESERVED

    def holds(self, kv_tokens: int) -> bool:
        """Whether so much fits in now; an empty worker decides for itself."""
        return self.free and (kv_tokens <= self.kv_tokens or self.slots == self.worker.max_slots)

    def opens_in_s(self) -> float:
        """When it can take something again, about: its grant is answered, a sequence ends, prompts are computed."""
        if self.slots <= 0:
            return self.worker.free_in_s
        return max(REGRANT_S, (self.tokens - self._prefill_limit) * self.worker.prefill_s)

    def take(self, kv_tokens: int, missing: int) -> None:
        self.slots -= 1
        self.taken += 1
        self.kv_tokens -= kv_tokens
        self.tokens += missing
        self.decoding += 1
        self._load_s = -1.0

    def _token_s(self) -> float:
        """What a prompt's token takes, with its share of the steps that do nothing else."""
        one = self.worker
        return one.prefill_s + (one.base_s / one.step_tokens if one.step_tokens else 0.0)
