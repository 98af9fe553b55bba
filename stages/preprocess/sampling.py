"""Sampling parameters: their ranges, what holds where a request leaves them open, and the context they must fit."""

import math
from typing import Any

import msgspec

from schemas.faults import RequestFault
from schemas.model import ModelCard
from schemas.request import Sampling
from schemas.ticket import EngineSampling, Structured

MAX_LOGPROBS = 20
MAX_STOP_IDS = 128
MAX_BIASES = 1024
MAX_ALLOWED_IDS = 1024
"""The last three are the sizes of vLLM's tables: one request with more stops the engine for all."""

_SEED_RANGE = 2**64
_LEAST_SEED = -(2**63)

_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    # Logits are divided by it in 32 bits: far smaller or larger ones end in infinities and stop the engine.
    "repetition_penalty": (0.01, 100.0),
    "max_tokens": (1, 2**31 - 1),
    "min_tokens": (0, 2**31 - 1),
    "top_k": (-1, 2**31 - 1),
    "logprobs": (0, MAX_LOGPROBS),
    "seed": (_LEAST_SEED, -_LEAST_SEED - 1),
}


def check_number(value: float, path: str, least: float, most: float, *, above: bool = False) -> None:
    """Raises `RequestFault` unless `least` ≤ `value` ≤ `most` (`above`: `least` is outside). NaN never passes."""
    inside = value <= most and (value > least if above else value >= least)
    if not inside:
        bounds = f"above {least} and at most {most}" if above else f"between {least} and {most}"
        raise RequestFault("invalid_request", f"must be {bounds}", path)


def check_sampling(sampling: Sampling, card: ModelCard) -> None:
    """Raises `RequestFault` for the first value out of range, or an id outside the model's vocabulary."""
    for name, (least, most) in _RANGES.items():
        value: Any = getattr(sampling, name)
        if value is not None:
            check_number(value, f"sampling.{name}", least, most)
    if sampling.top_p is not None:
        check_number(sampling.top_p, "sampling.top_p", 0.0, 1.0, above=True)
    _check_stop_ids(sampling.stop_token_ids or [], card.vocab_size)
    _check_allowed_ids(sampling, card.vocab_size)
    _check_biases(sampling.logit_bias or {}, card.vocab_size)


def resolve(
    sampling: Sampling, card: ModelCard, prompt_tokens: int, param: str, structured: Structured | None = None
) -> EngineSampling:
    """The request's values over the model's; `max_tokens` fits the context. `param` is the prompt's field.

    Raises `RequestFault` where prompt and answer do not fit the context together.
    """
    names = EngineSampling.__struct_fields__
    known = {name: _value(sampling, card.defaults, name) for name in names if name != "structured"}
    known["max_tokens"] = answer_tokens(sampling, card, prompt_tokens, param)
    known["min_tokens"] = sampling.min_tokens
    known["structured"] = structured
    known["top_k"] = min(max(known["top_k"], 0), card.vocab_size)
    known["logit_bias"] = {int(token): bias for token, bias in (sampling.logit_bias or {}).items()} or None
    resolved = EngineSampling(**known)
    if resolved.min_tokens > resolved.max_tokens:
        reason = f"{resolved.min_tokens} tokens at least, but {resolved.max_tokens} at most"
        raise RequestFault("invalid_request", reason, "sampling.min_tokens")
    return resolved


def answer_tokens(sampling: Sampling, card: ModelCard, prompt_tokens: int, param: str) -> int:
    """How many tokens the answer may have. Raises `RequestFault` that names context, prompt and what was asked for."""
    room = card.context_length - prompt_tokens
    if sampling.max_tokens is not None and sampling.max_tokens > room:
        where = param if room < 1 else "sampling.max_tokens"
        raise too_long(card, str(prompt_tokens), sampling.max_tokens, where)
    if room < 1:
        raise too_long(card, str(prompt_tokens), None, param)
    if sampling.max_tokens is not None:
        return sampling.max_tokens
    return min(room, card.defaults.max_tokens) if card.defaults.max_tokens > 0 else room


def too_long(card: ModelCard, prompt_tokens: str, max_tokens: int | None, param: str) -> RequestFault:
    """The fault for a prompt of `prompt_tokens` (a number, or "more than" one) that does not fit with its answer."""
    if max_tokens is None:
        rest = "which leaves no room for an answer"
    else:
        rest = f"and {max_tokens} more were asked for (max_tokens)"
    reason = f"the model's context is {card.context_length} tokens; the prompt has {prompt_tokens}, {rest}"
    return RequestFault("context_length_exceeded", reason, param)


def for_choice(sampling: EngineSampling, choice: int) -> EngineSampling:
    """Choices of one request differ: each has the next seed (64 bits, signed)."""
    if sampling.seed is None or choice == 0:
        return sampling
    seed = (sampling.seed + choice - _LEAST_SEED) % _SEED_RANGE + _LEAST_SEED
    return msgspec.structs.replace(sampling, seed=seed)


def _value(sampling: Sampling, defaults: EngineSampling, name: str) -> Any:
    value = getattr(sampling, name)
    return getattr(defaults, name) if value is None else value


def _check_stop_ids(ids: list[int], vocab_size: int) -> None:
    if len(ids) > MAX_STOP_IDS:
        reason = f"{len(ids)} ids, at most {MAX_STOP_IDS} are served"
        raise RequestFault("invalid_request", reason, "sampling.stop_token_ids")
    for index, token in enumerate(ids):
        check_number(token, f"sampling.stop_token_ids[{index}]", 0, vocab_size - 1)


def _check_allowed_ids(sampling: Sampling, vocab_size: int) -> None:
    ids, path = sampling.allowed_token_ids, "sampling.allowed_token_ids"
    if ids is None:
        return
    if not 1 <= len(ids) <= MAX_ALLOWED_IDS:
        raise RequestFault("invalid_request", f"{len(ids)} ids, 1 to {MAX_ALLOWED_IDS} are served", path)
    for index, token in enumerate(ids):
        check_number(token, f"{path}[{index}]", 0, vocab_size - 1)


def _check_biases(biases: dict[str, float], vocab_size: int) -> None:
    if len(biases) > MAX_BIASES:
        reason = f"{len(biases)} entries, at most {MAX_BIASES} are served"
        raise RequestFault("invalid_request", reason, "sampling.logit_bias")
    for token, bias in biases.items():
        path = f"sampling.logit_bias.{token[:24]}"
        if not (token.isascii() and token.isdecimal() and len(token) < 20 and int(token) < vocab_size):
            raise RequestFault("invalid_request", f"is no token id from 0 to {vocab_size - 1}", _printable(path))
        if not (math.isfinite(bias) and -100 <= bias <= 100):
            raise RequestFault("invalid_request", "must be between -100 and 100", path)


def _printable(path: str) -> str:
    return path.encode("ascii", "replace").decode()
