"""Client → preprocess: one request, on `hr.request.<tenant>.<model>`. The tenant is the one of the subject."""

from typing import Any

import msgspec

MAX_DEADLINE_S = 900.0
"""Half of the default age limit of RESULTS: an answer stays replayable for as long again as it took."""

DEFAULT_DEADLINE_S = 600.0
"""What a request has that leaves `deadline_s` out, or says just this: on the wire these are the same."""


class ContentPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """One part of a message's content. Only `type: "text"` is served; preprocess names any other."""

    type: str
    text: str = ""


class FunctionCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that the assistant made earlier; `arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call in an assistant's earlier turn."""

    function: FunctionCall
    id: str = ""
    type: str = "function"


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn of a chat, in the shape that OpenAI clients send."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the next token is chosen. `None` means: the model's own generation config decides, then the neutral value.

    Ranges are checked in preprocess. `logprobs` is the number of alternatives beside the chosen token (0 to 20).
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None


class Request(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """What a client asks for: exactly one of `messages` and `prompt` (text, or token ids).

    `id` is the client's own and makes submitting idempotent; `session` names the subject that the client listens
    on. `deadline_s` counts from the moment the broker stored the request; the default is lowered in preprocess where
    results are kept too briefly for it. `template_options` go to the chat template as they are;
    `continue_final_message` lets the model go on with the last message's text.

    `response_format` is OpenAI's (`json_object`, `json_schema`), `structured_outputs` vLLM's (`json`, `json_object`,
    `regex`, `choice` or `grammar`). `tool_choice` is OpenAI's: `auto`, `none`, `required`, or the name of one. With
    `split` off nothing is taken out of the text: thoughts and tool calls stand in it as the model wrote them.
    `add_special_tokens`: None leaves it to what is usual (a chat's template writes its own, a prompt gets them).
    """

    id: str
    session: str
    model: str = ""
    messages: list[ChatMessage] | None = None
    prompt: str | list[int] | None = None
    tools: list[dict[str, Any]] | None = None
    template_options: dict[str, Any] | None = None
    continue_final_message: bool = False
    sampling: Sampling = Sampling()
    stop: str | list[str] | None = None
    include_stop: bool = False
    n: int = 1
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    split: bool = True
    include_reasoning: bool = True
    skip_special_tokens: bool = True
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True
    user: str = ""
    priority: int = 0
    deadline_s: float = DEFAULT_DEADLINE_S
    cache_salt: str = ""


class Envelope(msgspec.Struct, frozen=True):
    """The part of a request that is needed to answer it, read from one whose other fields are wrong."""

    id: str
    session: str
