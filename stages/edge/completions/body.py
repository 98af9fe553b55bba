"""The body of `/v1/completions`. Sources: OpenAI's API reference, and vLLM 0.32 for its additions."""

from typing import Annotated, Any

from pydantic import Field

from stages.edge.generation.parameters import GenerationBody, Integer, ListOf, Only

MAX_PROMPTS = 128
"""Each is a request of its own in a bounded queue."""

Several = Field(max_length=MAX_PROMPTS)


class CompletionBody(GenerationBody):
    """Text, or token ids, to go on with: one prompt, or several of a kind."""

    prompt: str | ListOf[Integer] | Annotated[ListOf[str], Several] | Annotated[ListOf[ListOf[Integer]], Several]
    logprobs: Integer | None = None
    """How many alternatives beside each chosen token."""

    echo: bool | None = None
    """The prompt's text stands before the answer's."""

    best_of: Integer | None = None
    """Served where it equals `n`: nothing is thrown away then."""

    # Not served: accepted at the value that changes nothing.
    suffix: Annotated[Any, Only("")] = None
    prompt_embeds: Annotated[Any, Only()] = None
