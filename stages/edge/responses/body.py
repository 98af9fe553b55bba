"""The body of `POST /v1/responses`: OpenAI's fields, and vLLM's for sampling. Types and names; values in preprocess.

Input items are checked one by one in `input_items`, so that a wrong one is named, and not every kind that it is not.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from stages.edge.generation.parameters import Body, Integer, ListOf, LogitBias, Number, Only, Tools

Metadata = Annotated[
    dict[Annotated[str, StringConstraints(max_length=64)], Annotated[str, StringConstraints(max_length=512)]],
    Field(max_length=16, fail_fast=True),
]

LOGPROBS = "message.output_text.logprobs"


class TextFormat(Body):
    """`text.format`: `text`, `json_object`, or `json_schema` with its name and schema."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextConfig(Body):
    """`text`."""

    format: TextFormat | None = None
    verbosity: Annotated[Any, Only("medium")] = None


class Reasoning(Body):
    """`reasoning`: the effort goes to the chat template. Thoughts come as they are, whatever summary is wanted."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Annotated[Any, Only("auto")] = None
    generate_summary: Annotated[Any, Only("auto")] = None


class ResponseStreamOptions(Body):
    """`stream_options`."""

    include_obfuscation: Annotated[Any, Only(False)] = None


class CreateResponse(Body):
    """What a client may ask for."""

    model: str | None = None
    input: str | ListOf[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    background: bool | None = None
    store: bool | None = None
    metadata: Metadata | None = None
    include: ListOf[str] | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    tools: Tools | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Integer | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_logprobs: Integer | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    """A hint for OpenAI's own routing; prompts are found in the cache without it."""

    # vLLM's
    top_k: Integer | None = None
    min_p: Number | None = None
    seed: Integer | None = None
    stop: str | ListOf[str] | None = None
    stop_token_ids: ListOf[Integer] | None = None
    include_stop_str_in_output: bool | None = None
    min_tokens: Integer | None = None
    ignore_eos: bool | None = None
    presence_penalty: Number | None = None
    frequency_penalty: Number | None = None
    repetition_penalty: Number | None = None
    logit_bias: LogitBias | None = None
    skip_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    priority: Integer | None = None
    cache_salt: str | None = None

    deadline_s: Number | None = None
    """Headrace's own: the response fails when it is older than this."""

    # Not served: accepted at the value that changes nothing.
    truncation: Annotated[Any, Only("disabled")] = None
    service_tier: Annotated[Any, Only("auto", "default")] = None
    prompt_cache_retention: Annotated[Any, Only("in_memory")] = None
    max_tool_calls: Annotated[Any, Only()] = None
    conversation: Annotated[Any, Only()] = None
    prompt: Annotated[Any, Only()] = None
    context_management: Annotated[Any, Only()] = None
    moderation: Annotated[Any, Only()] = None
    background_options: Annotated[Any, Only()] = None
    prompt_cache_options: Annotated[Any, Only()] = None
    access_programs: Annotated[Any, Only()] = None
    image: Annotated[Any, Only()] = None
