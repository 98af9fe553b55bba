"""A chat's body in the words of `Request`. Pure."""

from typing import Any

from stages.edge.chat.body import ChatBody, EarlierCall, Message, NamedTool
from stages.edge.generation.translation import Asked, shared_options
from stages.edge.http.errors import error_of

SAME_NAMES = ("tools", "parallel_tool_calls", "include_reasoning", "add_generation_prompt", "continue_final_message")


def asked_of(body: ChatBody) -> Asked:
    """The arguments of `Headrace.stream`, messages included. Raises `ApiError` for fields that do not go together."""
    shared = shared_options(body)
    options, renames = shared.options, dict(shared.renames)
    options["messages"] = [_message(message) for message in body.messages]
    options |= {name: value for name in SAME_NAMES if (value := getattr(body, name)) is not None}
    _limit(body, options, renames)
    _logprobs(body, options, renames)
    _tools(body, options)
    _template(body, options, renames)
    if body.user is None and body.safety_identifier is not None:
        options["user"] = body.safety_identifier
        renames["user"] = "safety_identifier"
    return Asked(options, renames)


def _limit(body: ChatBody, options: dict[str, Any], renames: dict[str, str]) -> None:
    newer = body.max_completion_tokens
    if newer is None:
        return
    if body.max_tokens not in (None, newer):
        reason = f"says {newer}, but max_tokens says {body.max_tokens}"
        raise error_of("invalid_request", reason, "max_completion_tokens")
    options["max_tokens"] = newer
    renames["max_tokens"] = "max_completion_tokens"


def _logprobs(body: ChatBody, options: dict[str, Any], renames: dict[str, str]) -> None:
    if body.logprobs and body.echo:
        raise error_of("unsupported", "is not served together with echo: prompts have no logprobs here", "logprobs")
    if body.logprobs:
        options["logprobs"] = body.top_logprobs or 0
        renames["logprobs"] = "top_logprobs"
    elif body.top_logprobs:
        raise error_of("invalid_request", "goes with logprobs: true alone", "top_logprobs")


def _tools(body: ChatBody, options: dict[str, Any]) -> None:
    if body.tools is not None and not body.tools:
        raise error_of("invalid_request", "is empty; leave it out where there are none", "tools")
    choice = body.tool_choice
    if choice is not None:
        options["tool_choice"] = choice.model_dump() if isinstance(choice, NamedTool) else choice


def _template(body: ChatBody, options: dict[str, Any], renames: dict[str, str]) -> None:
    """`reasoning_effort` reaches the template by its name, and switches thinking where a template asks for that."""
    if body.continue_final_message and body.add_generation_prompt:
        raise error_of("invalid_request", "does not go with continue_final_message", "add_generation_prompt")
    template = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort is not None:
        template["reasoning_effort"] = body.reasoning_effort
        template.setdefault("enable_thinking", body.reasoning_effort != "none")
        renames["template_options.reasoning_effort"] = "reasoning_effort"
    if template:
        options["template_options"] = template


def _message(message: Message) -> dict[str, Any]:
    """In the shape of `ChatMessage`."""
    content: Any = message.content
    if isinstance(message.content, list):
        content = [{"type": part.type, "text": part.text} for part in message.content]
    turn: dict[str, Any] = {"role": message.role, "content": content}
    thoughts = message.reasoning if message.reasoning_content is None else message.reasoning_content
    optional = {"name": message.name, "tool_call_id": message.tool_call_id, "reasoning_content": thoughts}
    turn |= {name: value for name, value in optional.items() if value is not None}
    if message.tool_calls:
        turn["tool_calls"] = [_call(call) for call in message.tool_calls]
    return turn


def _call(call: EarlierCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments or ""}
    return {"id": call.id or "", "type": call.type or "function", "function": function}
