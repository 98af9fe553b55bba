"""Is this a request that an engine can serve? Every wrong value is a `RequestFault` that names its field.

Ranges are those of the OpenAI API where it has one, else vLLM's. Nothing that could stop an engine passes.
"""

import re
from typing import Any

import msgspec

from schemas.faults import RequestFault
from schemas.model import ModelCard
from schemas.names import is_id
from schemas.request import DEFAULT_DEADLINE_S, MAX_DEADLINE_S, ChatMessage, ContentPart, Request
from stages.preprocess.json_values import check_json, check_text
from stages.preprocess.sampling import check_number, check_sampling

MAX_CHOICES = 16
MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MAX_MESSAGES = 4096
MAX_TOOLS = 1024
MAX_NAME = 256
PRIORITY_LIMIT = 2**31 - 1

_OPTION_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")

_OF_CHATS: dict[str, tuple[Any, ...]] = {
    "tools": (None, []),
    "tool_choice": (None, "none"),
    "parallel_tool_calls": (True,),
    "template_options": (None, {}),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
}
"""Fields that a prompt has no use for, and what they say where they say nothing."""

RESERVED_OPTIONS = frozenset(
    {
        "messages",
        "tools",
        "conversations",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "return_assistant_tokens_mask",
        "bos_token",
        "eos_token",
        "unk_token",
        "sep_token",
        "pad_token",
        "cls_token",
        "mask_token",
    }
)
"""Template variables that are no client's to set: a template of its own, or text that becomes control tokens."""


def check_identity(identity: str, session: str) -> None:
    """Raises `RequestFault` for an id or session that cannot stand in a subject: such a request cannot be answered."""
    for name, text in (("id", identity), ("session", session)):
        if not is_id(text):
            raise RequestFault("invalid_request", "must be 1 to 64 characters of A-Z, a-z, 0-9, _ and -", name)


def with_deadline(request: Request, max_deadline_s: float) -> Request:
    """The request, its `deadline_s` at most the limit if it said none. 600 exactly counts as none: nothing tells."""
    if request.deadline_s != DEFAULT_DEADLINE_S or max_deadline_s >= DEFAULT_DEADLINE_S:
        return request
    return msgspec.structs.replace(request, deadline_s=max_deadline_s)


def validate(request: Request, card: ModelCard, max_deadline_s: float = MAX_DEADLINE_S) -> None:
    """Raises `RequestFault` for the first wrong field. What only a template or a tokenizer can tell comes later."""
    check_identity(request.id, request.session)
    check_number(request.n, "n", 1, MAX_CHOICES)
    check_number(request.priority, "priority", -PRIORITY_LIMIT, PRIORITY_LIMIT)
    check_number(request.deadline_s, "deadline_s", 0, max_deadline_s, above=True)
    _check_length(request.cache_salt, "cache_salt")
    check_sampling(request.sampling, card)
    _check_stops(request.stop)
    _check_length(request.user, "user")
    if (request.messages is None) == (request.prompt is None):
        which = "messages" if request.messages is None else "prompt"
        raise RequestFault("invalid_request", "exactly one of messages and prompt is needed", which)
    if request.messages is not None:
        _check_chat(request, request.messages)
    elif request.prompt is not None:
        _check_prompt(request, request.prompt, card)


def _check_stops(stop: str | list[str] | None) -> None:
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > MAX_STOPS:
        raise RequestFault("invalid_request", f"{len(stops)} stop strings, at most {MAX_STOPS} are served", "stop")
    for index, text in enumerate(stops):
        path = "stop" if isinstance(stop, str) else f"stop[{index}]"
        if not text:
            raise RequestFault("invalid_request", "an empty stop string would end every answer at once", path)
        _check_length(text, path, MAX_STOP_LENGTH)


def _check_prompt(request: Request, prompt: str | list[int], card: ModelCard) -> None:
    for name, neutral in _OF_CHATS.items():
        if getattr(request, name) not in neutral:
            raise RequestFault("invalid_request", "goes with messages, not with a prompt", name)
    if not prompt:
        raise RequestFault("invalid_request", "is empty", "prompt")
    if isinstance(prompt, str):
        check_text(prompt, "prompt")
    elif min(prompt) < 0 or max(prompt) >= card.vocab_size:
        index = next(index for index, token in enumerate(prompt) if not 0 <= token < card.vocab_size)
        raise RequestFault(
            "invalid_request", f"id {_short(prompt[index])} is outside 0 to {card.vocab_size - 1}", f"prompt[{index}]"
        )


def _check_chat(request: Request, messages: list[ChatMessage]) -> None:
    if not messages:
        raise RequestFault("invalid_request", "needs at least one message", "messages")
    if len(messages) > MAX_MESSAGES:
        raise RequestFault("invalid_request", f"{len(messages)} messages, at most {MAX_MESSAGES}", "messages")
    for index, message in enumerate(messages):
        _check_message(message, f"messages[{index}]")
    _check_tools(request.tools or [])
    _check_options(request.template_options or {})


def _check_message(message: ChatMessage, path: str) -> None:
    check_text(message.role, f"{path}.role")
    if isinstance(message.content, str):
        check_text(message.content, f"{path}.content")
    elif message.content is not None:
        _check_parts(message.content, f"{path}.content")
    elif not (message.role == "assistant" and (message.tool_calls or message.reasoning_content)):
        raise RequestFault(
            "invalid_request", "only an assistant's message with tool calls may have none", f"{path}.content"
        )
    for name in ("name", "tool_call_id", "reasoning_content"):
        check_text(getattr(message, name) or "", f"{path}.{name}")
    if message.tool_calls and message.role != "assistant":
        raise RequestFault("invalid_request", "only an assistant calls tools", f"{path}.tool_calls")
    for index, call in enumerate(message.tool_calls or []):
        _check_call(call.function.name, call.function.arguments, f"{path}.tool_calls[{index}].function")
        check_text(call.id, f"{path}.tool_calls[{index}].id")
        check_text(call.type, f"{path}.tool_calls[{index}].type")


def _check_parts(parts: list[ContentPart], path: str) -> None:
    for index, part in enumerate(parts):
        check_text(part.type, f"{path}[{index}].type")
        if part.type != "text":
            raise RequestFault("unsupported", f"{part.type[:64]!r} is not served, only 'text'", f"{path}[{index}].type")
        check_text(part.text, f"{path}[{index}].text")


def _check_call(name: str, arguments: str, path: str) -> None:
    if not name:
        raise RequestFault("invalid_request", "is empty", f"{path}.name")
    _check_length(name, f"{path}.name")
    check_text(arguments, f"{path}.arguments")


def _check_tools(tools: list[dict[str, Any]]) -> None:
    if len(tools) > MAX_TOOLS:
        raise RequestFault("invalid_request", f"{len(tools)} tools, at most {MAX_TOOLS}", "tools")
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        check_json(tool, path)
        if tool.get("type", "function") != "function":
            raise RequestFault("unsupported", "only tools of type 'function' are served", f"{path}.type")
        function: Any = tool.get("function")
        if not isinstance(function, dict):
            raise RequestFault("invalid_request", "needs a function", f"{path}.function")
        name: Any = function.get("name")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(name, str) or not name:
            raise RequestFault("invalid_request", "needs a name", f"{path}.function.name")
        _check_length(name, f"{path}.function.name")


def _check_options(options: dict[str, Any]) -> None:
    for name in options:
        path = f"template_options.{name[:64]}"
        if not _OPTION_NAME.match(name):
            raise RequestFault("invalid_request", "is no name of a template variable", "template_options")
        if name in RESERVED_OPTIONS:
            raise RequestFault("invalid_request", "may not be set by a request", path)
    check_json(options, "template_options")


def _check_length(text: str, path: str, limit: int = MAX_NAME) -> None:
    check_text(text, path)
    if len(text) > limit:
        raise RequestFault("invalid_request", f"{len(text)} characters, at most {limit}", path)


def _short(number: int) -> str:
    """A number for a message: a request may hold one of a million digits."""
    return str(number) if -(2**64) < number < 2**64 else "far"
