"""Preprocess → schedule → inference: one choice of a request as token ids, on `hr.ticket.<model>.<tenant>`.

The ticket, unacknowledged in TICKETS, is the durable copy of a request until its answer has ended.
"""

from typing import Literal

import msgspec

from schemas.codec import Encoding, unpack_ids
from schemas.names import Count, Id


class StageTime(msgspec.Struct, frozen=True, array_like=True):
    """What a request cost at one stage, in seconds: waiting to be taken, then being worked on."""

    queued: float
    service: float


StructuredKind = Literal["json", "json_object", "regex", "choice", "grammar"]


class Thoughts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model may think before it answers: the ids of its two tags. `open`: the prompt ends within the thoughts."""

    opener: int
    closer: int
    open: bool = False


class Structured(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the text of an answer has to match; the engine's grammar sees to it.

    `value` is a JSON Schema (as JSON text), a regular expression, a JSON list of choices or an EBNF grammar; "" for
    `json_object`. With `thoughts` it holds for what follows them. `param` is the field of the request that it came
    from: what is wrong with a grammar shows only where it is compiled.
    """

    kind: StructuredKind
    value: str = ""
    thoughts: Thoughts | None = None
    param: str = ""


class EngineSampling(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Sampling with nothing left open: the request's values over the model's over the neutral ones.

    Every id in it lies inside the model's vocabulary (checked in preprocess: an engine does not check).
    """

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] | None = None
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    ignore_eos: bool = False
    logprobs: int | None = None
    structured: Structured | None = None


class AnswerSpec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What postprocess needs to turn ids into the text of this answer.

    `reasoning` and `tools` name the families of splitters that take thoughts and tool calls out of the text ("": none
    does). `reasoning_open`: the prompt ends inside the thoughts. `tool_name` is the one tool that has to be called
    (`tools` = `json_arguments`: the whole text is its arguments). `text_arguments` are those of the tools' arguments
    that take texts, as `tool argument`, where the model does not say so (`families.TAGGED_VALUES`).
    """

    encoding: Encoding = "msgpack"
    stop: list[str] = []
    include_stop: bool = False
    skip_special_tokens: bool = True
    reasoning: str = ""
    reasoning_open: bool = False
    include_reasoning: bool = True
    tools: str = ""
    tool_name: str = ""
    parallel_tool_calls: bool = True
    text_arguments: list[str] = []


class Ticket(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """One choice, ready for an engine.

    `prompt` is packed u32 ids; `block_hashes` 8 bytes for each full KV block of the prompt (empty until the model's
    card names a block size). `deadline_ms` counts from the broker's time stamp of the ticket itself. `trace` is a
    W3C traceparent. `received_at` is the broker's time stamp of the request (Unix seconds),
    `choices` how many it asked for.
    """

    tenant: Id
    request: Id
    choice: Count
    session: Id
    model: Id
    prompt: bytes
    sampling: EngineSampling
    partition: Count
    deadline_ms: int
    block_hashes: bytes = b""
    cache_salt: str = ""
    priority: int = 0
    answer: AnswerSpec = AnswerSpec()
    trace: str = ""
    received_at: float = 0.0
    preprocess: StageTime = StageTime(0.0, 0.0)
    choices: Count = 1

    def __post_init__(self) -> None:
        """Raises `ValueError`, which a reader sees as `WireError`."""
        if len(self.prompt) % 4:
            raise ValueError("prompt is no whole number of u32 token ids")

    @property
    def key(self) -> str:
        """The name of the request everywhere: `<tenant>.<request id>`."""
        return f"{self.tenant}.{self.request}"

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt) // 4

    def prompt_ids(self) -> list[int]:
        return unpack_ids(self.prompt)
