"""What may go into an engine: the KV cache it will need, and requests that must never reach it."""

from dataclasses import dataclass, field

from schemas.faults import Fault
from schemas.ticket import EngineSampling
from stages.inference.engine import EngineFacts, EngineRequest


@dataclass
class KvBudget:
    """The KV cache as the worker gives it away, in tokens: for each request its context and the output that is likely.

    `reserve` tokens of output are set aside for each; a longer answer takes more as it grows. Schedulers count in the
    same way, without the rounding to blocks: an engine that runs out computes something twice, nothing worse.
    """

    capacity: int
    reserve: int
    _taken: dict[str, int] = field(default_factory=dict[str, int])
    _used: int = 0

    @property
    def free(self) -> int:
        return max(self.capacity - self._used, 0)

    def need(self, request: EngineRequest) -> int:
        """What a request takes at its start."""
        to_come = max(request.sampling.max_tokens - len(request.generated), 0)
        return len(request.prompt) + len(request.generated) + min(to_come, self.reserve)

    def fits(self, request: EngineRequest, alone: bool) -> bool:
        """Whether it can be taken now. An engine with nothing else to do takes whatever its context allows."""
        return alone or self.need(request) <= self.free

    def take(self, request: EngineRequest) -> int:
        """Counts it from now on; as how many tokens."""
        need = self.need(request)
        self.give_back(request.id)
        self.grow(request.id, need)
        return need

    def grow(self, name: str, length: int) -> None:
        """The sequence has `length` tokens now."""
        more = length - self._taken.get(name, 0)
        if more > 0:
            self._used += more
            self._taken[name] = length

    def give_back(self, name: str) -> None:
        self._used -= self._taken.pop(name, 0)


def fault_of(request: EngineRequest, facts: EngineFacts) -> Fault | None:
    """Why a request cannot go into the engine. Preprocess refuses all this; one that slips through would kill it."""
    if not request.prompt:
        return Fault("invalid_request", "the prompt has no tokens", "prompt")
    if (wrong := _outside(request.context, facts.vocab_size)) is not None:
        return Fault("internal", f"token id {wrong} lies outside the vocabulary of {facts.vocab_size}")
    if len(request.prompt) >= facts.context_length:
        text = f"the prompt has {len(request.prompt)} tokens, the context of this model {facts.context_length}"
        return Fault("context_length_exceeded", text, "prompt")
    return _fault_of_sampling(request.sampling, facts)


def _fault_of_sampling(sampling: EngineSampling, facts: EngineFacts) -> Fault | None:
    named = [*(sampling.stop_token_ids or ()), *(sampling.logit_bias or ()), *(sampling.allowed_token_ids or ())]
    if (wrong := _outside(named, facts.vocab_size)) is not None:
        reason = f"token id {wrong} lies outside the vocabulary of {facts.vocab_size}"
        return Fault("invalid_request", reason, "sampling")
    if sampling.structured is not None and not facts.structured:
        reason = "this worker's engine holds no answer to a grammar"
        return Fault("unsupported", reason, sampling.structured.param)
    if sampling.max_tokens < 1:
        return Fault("invalid_request", f"{sampling.max_tokens} is no number of tokens", "sampling.max_tokens")
    return None


def already_over(request: EngineRequest, facts: EngineFacts) -> tuple[str, int | None] | None:
    """The finish and stop id of an answer whose earlier attempt ended right before it could say so."""
    generated = request.generated
    may_stop = len(generated) > request.sampling.min_tokens
    if may_stop and generated[-1] in (request.sampling.stop_token_ids or ()):
        return "stop", generated[-1]
    if len(generated) >= request.sampling.max_tokens or len(request.context) >= facts.context_length:
        return "length", None
    return None


def _outside(ids: list[int], vocab_size: int) -> int | None:
    """The first id that is none of the vocabulary."""
    if ids and (min(ids) < 0 or max(ids) >= vocab_size):
        return next(one for one in ids if not 0 <= one < vocab_size)
    return None
