"""A text completion's body in the words of `Request`, one for each of its prompts. Pure."""

from typing import Any

from stages.edge.completions.body import CompletionBody
from stages.edge.generation.translation import Asked, shared_options
from stages.edge.http.errors import error_of

DEFAULT_MAX_TOKENS = 16
"""OpenAI's, and vLLM's."""

Prompt = str | list[int]


def asked_of(body: CompletionBody) -> list[Asked]:
    """The arguments of `Headrace.stream` for each prompt. Raises `ApiError` for what is not served."""
    shared = shared_options(body)
    options = shared.options
    options.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    if body.logprobs is not None:
        options["logprobs"] = body.logprobs
    _check(body)
    prompts, several = _prompts(body.prompt)
    return [
        Asked({**options, "prompt": prompt}, {**shared.renames, **({"prompt": f"prompt[{index}]"} if several else {})})
        for index, prompt in enumerate(prompts)
    ]


def _check(body: CompletionBody) -> None:
    if body.echo and body.logprobs is not None:
        raise error_of("unsupported", "is not served together with echo: prompts have no logprobs here", "logprobs")
    if body.best_of is not None and body.best_of != (1 if body.n is None else body.n):
        raise error_of("unsupported", "is served only where it equals n", "best_of")


def _prompts(prompt: Any) -> tuple[list[Prompt], bool]:
    """The prompts, and whether the body has a list of them."""
    if isinstance(prompt, str) or (prompt and isinstance(prompt[0], int)):
        return [prompt], False
    if not prompt:
        raise error_of("invalid_request", "is empty", "prompt")
    return prompt, True
