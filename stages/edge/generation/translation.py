"""A checked body in the words of `Request`, and back: which of the client's fields a fault means. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stages.edge.generation.parameters import GenerationBody
from stages.edge.http.errors import error_of

SAME_NAMES = (
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "stop",
    "stop_token_ids",
    "allowed_token_ids",
    "ignore_eos",
    "n",
    "skip_special_tokens",
    "add_special_tokens",
    "priority",
    "cache_salt",
    "user",
    "deadline_s",
)
"""What the body, `Request` and `Sampling` call alike."""

GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
"""vLLM's older names of the members of `structured_outputs`."""


@dataclass(frozen=True)
class Asked:
    """What a body asks for: `options` for `Headrace.stream`, and how its faults are named to the client.

    `renames` leads from a field of `Request` to the name in the body, where these differ.
    """

    options: dict[str, Any]
    renames: Mapping[str, str] = field(default_factory=dict[str, str])


def shared_options(body: GenerationBody) -> Asked:
    """What chats and completions have in common; fields left out, or null, do not appear. Raises `ApiError`."""
    _check_stream_options(body)
    options = {name: value for name in SAME_NAMES if (value := getattr(body, name)) is not None}
    renames: dict[str, str] = {}
    if body.model is not None:
        options["model"] = body.model
    if body.max_tokens is not None:
        options["max_tokens"] = body.max_tokens
    if body.include_stop_str_in_output is not None:
        options["include_stop"] = body.include_stop_str_in_output
    if body.response_format is not None:
        options["response_format"] = body.response_format.model_dump(by_alias=True, exclude_unset=True)
    if (outputs := _structured_outputs(body, renames)) is not None:
        options["structured_outputs"] = outputs
    return Asked(options, renames)


def wants_usage(body: GenerationBody) -> bool:
    """Whether the stream ends with a chunk that has the usage."""
    return bool(body.stream_options and body.stream_options.include_usage)


def wants_continuous_usage(body: GenerationBody) -> bool:
    """Whether every chunk has the usage so far. As at vLLM it goes with `include_usage` alone."""
    return wants_usage(body) and bool(body.stream_options and body.stream_options.continuous_usage_stats)


def _check_stream_options(body: GenerationBody) -> None:
    if body.stream_options is not None and not body.stream:
        raise error_of("invalid_request", "goes with stream: true alone", "stream_options")


def _structured_outputs(body: GenerationBody, renames: dict[str, str]) -> dict[str, Any] | None:
    """`structured_outputs`, or one of the names that it had before. They may not be mixed."""
    outputs: dict[str, Any] = {}
    if body.structured_outputs is not None:
        outputs = body.structured_outputs.model_dump(by_alias=True, exclude_none=True)
        outputs.pop("disable_fallback", None)
        outputs.pop("disable_any_whitespace", None)
    for old, name in GUIDED.items():
        value = getattr(body, old)
        if value is None:
            continue
        if outputs:
            raise error_of("invalid_request", "only one constraint may be given", old)
        outputs[name] = value
        renames[f"structured_outputs.{name}"] = renames["structured_outputs"] = old
    return outputs if outputs or body.structured_outputs is not None else None
