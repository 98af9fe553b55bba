"""What may go into an engine: requests that must never reach it, and those that are over already."""

from schemas.faults import Fault
from schemas.ticket import EngineSampling
from stages.inference.engine import EngineFacts, EngineRequest


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
