"""What `/v1/chat/completions` and `/v1/completions` answer, in OpenAI's shapes with vLLM's additions.

Sources: the types of the `openai` client (`openai.types`), and vLLM 0.32's `entrypoints/openai/*/protocol.py` for
`stop_reason`, `token_ids`, `reasoning`. A field that is `UNSET` is left out; one that is None is `null`.
"""

import msgspec
from msgspec import UNSET, UnsetType


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """How many of the prompt's tokens came from the KV cache."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """Those of the answer's tokens that are thoughts."""

    reasoning_tokens: int


class CompletionUsage(msgspec.Struct, frozen=True):
    """Tokens of the prompts (each counted once) and of all choices of the answer; the details where it has thoughts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


class AlternativeLogprob(msgspec.Struct, frozen=True):
    """A candidate in a token's place."""

    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(msgspec.Struct, frozen=True):
    """One token of a chat's answer; `top_logprobs` are the likeliest in its place, best first."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[AlternativeLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """The logprobs of a chat's answer, or of a piece of it."""

    content: list[ContentLogprob]
    refusal: None = None


class FunctionDelta(msgspec.Struct, frozen=True):
    """A piece of a call: its name in the first one, pieces of the JSON text of its arguments in each."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the call number `index`; its first one says `id` and `type`."""

    index: int
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionDelta


class ChatDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of a message. `reasoning` is vLLM's name for thoughts, `reasoning_content` DeepSeek's."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice in a chunk of a streamed chat."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class CalledFunction(msgspec.Struct, frozen=True):
    """The function that a call names, and the JSON text of its arguments as the model wrote it."""

    name: str
    arguments: str


class CalledTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call of a whole answer."""

    id: str
    type: str = "function"
    function: CalledFunction


class AnswerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The message of a whole answer."""

    role: str
    content: str | None
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CalledTool] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of a whole chat answer."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    stop_reason: str | int | UnsetType | None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole chat answer."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage
    service_tier: None = None
    system_fingerprint: str
    prompt_token_ids: list[int] | UnsetType = UNSET


class TextLogprobs(msgspec.Struct, frozen=True):
    """Parallel lists, one entry a token. `text_offset` counts code points from the start of the choice's text."""

    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class TextChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of a text completion: a whole one, or what is new of it."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class TextCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """A whole text completion."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: CompletionUsage
    service_tier: None = None
    system_fingerprint: str
