"""Client → preprocess and back, as services: `hr.tokenize.<model>` and `hr.detokenize.<model>`.

The fields are those of vLLM's `/tokenize` and `/detokenize` (`vllm/entrypoints/serve/tokenize/protocol.py`), with
`chat_template_kwargs` under the name that it has in a request.
"""

from typing import Any

import msgspec

from schemas.faults import Fault
from schemas.request import ChatMessage


class TokenizeRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """What ids a request with this `prompt`, or these `messages`, would have: exactly one of them.

    `add_special_tokens`: None leaves it to what is usual (a chat's template writes its own, a prompt gets them).
    `continue_final_message` goes before `add_generation_prompt`.
    """

    model: str = ""
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    template_options: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool | None = None
    return_token_strs: bool = False


class TokenizeAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="v", tag=1):
    """`count` ids. `max_model_len` is the model's context, in tokens: `count` may be more.

    `token_strs` are the vocabulary's own spellings of the ids (`Ġhello`), None unless they were asked for.
    """

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """Token ids whose text is wanted, each inside the model's vocabulary."""

    tokens: list[int]
    model: str = ""


class DetokenizeAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="v", tag=1):
    """The text of the ids, control tokens too. Bytes that are no UTF-8 are U+FFFD."""

    prompt: str


class ServiceRefusal(msgspec.Struct, frozen=True, kw_only=True, tag_field="v", tag=1):
    """The body of an answer that has the header `Nats-Service-Error`."""

    fault: Fault
