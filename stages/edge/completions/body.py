"""The body of `/v1/completions`. Sources: OpenAI's API reference, and vLLM 0.32 for its additions."""

from typing import Annotated, Any

from stages.edge.generation.parameters import GenerationBody, Integer, Only


class CompletionBody(GenerationBody):
    """Text, or token ids, to go on with: one prompt, or several of a kind."""

    prompt: str | list[Integer] | list[str] | list[list[Integer]]
    logprobs: Integer | None = None
    """How many alternatives beside each chosen token."""

    echo: bool | None = None
    """The prompt's text stands before the answer's."""

    best_of: Integer | None = None
    """Served where it equals `n`: nothing is thrown away then."""

    # Not served: accepted at the value that changes nothing.
    suffix: Annotated[Any, Only("")] = None
    prompt_embeds: Annotated[Any, Only()] = None
