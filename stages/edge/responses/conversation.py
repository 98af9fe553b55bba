"""Items of a response's input, and of earlier answers, as the messages of a chat. Pure; items are checked before.

A call that was cut off (its answer had no tokens left, or the model wrote no JSON) is none that a model could be shown.
"""

from typing import Any

from schemas.tool_arguments import parsed_arguments
from stages.edge.responses.items import Json

Message = dict[str, Any]


def messages_of(items: list[Json], instructions: str | None = None) -> list[Message]:
    """The chat. What the assistant did in a row (thoughts, text, calls) is one message: so templates expect it.

    Calls that are marked as incomplete, and are cut off, are left out.
    """
    messages: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
    turn: Message | None = None
    for item in items:
        if item.get("status") == "incomplete" and is_cut_off(item):
            continue
        if not _is_assistants(item):
            turn = None
            messages.append(_other(item))
            continue
        if turn is None or _begins_anew(turn, item):
            turn = {"role": "assistant"}
            messages.append(turn)
        _add(turn, item)
    return messages


def is_cut_off(item: Json) -> bool:
    """Whether it is a call whose arguments are no JSON object, nothing at all included."""
    if item["type"] != "function_call":
        return False
    try:
        parsed_arguments(item["arguments"])
    except ValueError:
        return True
    return False


def text_of(content: str | list[Json]) -> str:
    """The text of all parts."""
    if isinstance(content, str):
        return content
    return "".join(part["refusal" if part["type"] == "refusal" else "text"] for part in content)


def _is_assistants(item: Json) -> bool:
    return item["type"] in ("reasoning", "function_call") or item.get("role") == "assistant"


def _begins_anew(turn: Message, item: Json) -> bool:
    """Thoughts stand before what they led to, text before the calls."""
    if item["type"] == "function_call":
        return False
    if item["type"] == "message":
        return "content" in turn or "tool_calls" in turn
    return len(turn) > 1


def _add(turn: Message, item: Json) -> None:
    if item["type"] == "message":
        turn["content"] = text_of(item["content"])
    elif item["type"] == "reasoning":
        turn["reasoning_content"] = text_of(item.get("content") or item.get("summary") or [])
    else:
        function = {"name": item["name"], "arguments": item["arguments"]}
        turn.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "function", "function": function})


def _other(item: Json) -> Message:
    if item["type"] == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": text_of(item["output"])}
    role = "system" if item["role"] == "developer" else item["role"]
    return {"role": role, "content": text_of(item["content"])}
