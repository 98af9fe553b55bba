"""A request's messages in the shape that chat templates are written for."""

from collections.abc import Iterable
from typing import Any

from schemas.faults import RequestFault
from schemas.request import ChatMessage, ToolCall
from schemas.tool_arguments import parsed_arguments
from stages.preprocess.json_values import check_json

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
"""The roles of the OpenAI API. A template may name others in its text, which are then accepted too."""


def conversation(messages: list[ChatMessage], more_roles: Iterable[str] = ()) -> list[dict[str, Any]]:
    """One mapping for each message: text parts joined, arguments of tool calls parsed, absent content `""`.

    Raises `RequestFault` for a role that no template has (some build control tokens from it) and bad arguments.
    """
    roles = ROLES.union(more_roles)
    return [_turn(message, f"messages[{index}]", roles) for index, message in enumerate(messages)]


def _turn(message: ChatMessage, path: str, roles: frozenset[str]) -> dict[str, Any]:
    if message.role not in roles:
        raise RequestFault("invalid_request", f"must be one of {', '.join(sorted(roles))}", f"{path}.role")
    turn: dict[str, Any] = {"role": message.role, "content": _text(message)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        value = getattr(message, name)
        if value is not None:
            turn[name] = value
    if message.tool_calls:
        turn["tool_calls"] = [
            _call(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
        ]
    return turn


def _text(message: ChatMessage) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    return "".join(part.text for part in message.content)


def _call(call: ToolCall, path: str) -> dict[str, Any]:
    """A call with its arguments as a mapping: a template that got them as text would encode them a second time."""
    arguments_path = f"{path}.function.arguments"
    arguments = _arguments(call.function.arguments, arguments_path)
    check_json(arguments, arguments_path)
    return {
        "id": call.id,
        "type": call.type,
        "function": {"name": call.function.name, "arguments": arguments},
    }


def _arguments(text: str, path: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        return parsed_arguments(text)
    except ValueError as error:
        raise RequestFault("invalid_request", str(error), path) from None
