"""The body of `/v1/chat/completions`. Sources: OpenAI's API reference, and vLLM 0.32 for its additions."""

from typing import Annotated, Any, Literal

from pydantic import Field

from stages.edge.generation.parameters import (
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_TOOLS,
    Body,
    GenerationBody,
    Integer,
    ListOf,
    Only,
    Tools,
)


class TextPart(Body):
    """A part of a message's content; only text is served."""

    type: Literal["text"]
    text: str


class FunctionOfCall(Body):
    """The function of an earlier call; `arguments` is JSON text."""

    name: str
    arguments: str | None = None


class EarlierCall(Body):
    """A tool call in an assistant's earlier turn, as the answer or a stream's deltas said it."""

    id: str | None = None
    type: Literal["function"] | None = None
    index: Integer | None = None
    """Of a streamed delta; calls keep the order of the list."""

    function: FunctionOfCall


class Message(Body):
    """One turn of the chat. Answers may be sent back as they came, with their empty fields."""

    role: str
    content: str | Annotated[ListOf[TextPart], Field(max_length=MAX_PARTS)] | None = None
    name: str | None = None
    tool_calls: Annotated[ListOf[EarlierCall], Field(max_length=MAX_TOOLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """vLLM's name for `reasoning_content`."""

    refusal: Annotated[Any, Only("")] = None
    annotations: Annotated[Any, Only([])] = None
    audio: Annotated[Any, Only()] = None
    function_call: Annotated[Any, Only()] = None


class NamedFunction(Body):
    """`tool_choice.function`."""

    name: str


class NamedTool(Body):
    """`tool_choice`, where one tool has to be called."""

    type: Literal["function"]
    function: NamedFunction


class ChatBody(GenerationBody):
    """A chat to go on with."""

    messages: Annotated[ListOf[Message], Field(max_length=MAX_MESSAGES)]
    max_completion_tokens: Integer | None = None
    """The newer name of `max_tokens`."""

    logprobs: bool | None = None
    top_logprobs: Integer | None = None
    tools: Tools | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """Handed to the chat template."""

    include_reasoning: bool | None = None
    """False: thoughts are left out of the answer (vLLM)."""

    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    echo: bool | None = None
    """The answer begins with the text of the last message, where that is the assistant's (vLLM)."""

    metadata: dict[str, Any] | None = None
    """A client's own labels. They are not kept."""

    safety_identifier: str | None = None
    """OpenAI's newer name of `user`."""

    prompt_cache_key: str | None = None
    """A hint for OpenAI's routing; requests here go to where their prompt is cached without it."""

    # Not served: accepted at the value that changes nothing.
    audio: Annotated[Any, Only()] = None
    modalities: Annotated[Any, Only(["text"])] = None
    store: Annotated[Any, Only(False)] = None
    service_tier: Annotated[Any, Only("auto", "default")] = None
    verbosity: Annotated[Any, Only("medium")] = None
    prediction: Annotated[Any, Only()] = None
    web_search_options: Annotated[Any, Only()] = None
    moderation: Annotated[Any, Only()] = None
    prompt_cache_options: Annotated[Any, Only()] = None
    prompt_cache_retention: Annotated[Any, Only()] = None
    functions: Annotated[Any, Only()] = None
    function_call: Annotated[Any, Only()] = None
    best_of: Annotated[Any, Only(1)] = None
    chat_template: Annotated[Any, Only()] = None
    documents: Annotated[Any, Only()] = None
    thinking_token_budget: Annotated[Any, Only()] = None
