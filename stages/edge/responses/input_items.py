"""Input items, as clients send them and get them back: what kinds there are, and what each may hold.

An item is kept as it came, with id, status, and the type `message` where they were left out. What is not served is
refused by name and place.
"""

import secrets
from collections.abc import Callable
from typing import Any, cast

from schemas.faults import RequestFault
from stages.edge.responses.items import Json

ROLES = ("user", "assistant", "system", "developer")

MAX_ITEMS = 4096

_ID_PREFIX = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}

_TEXT_PARTS = ("input_text", "output_text")


def input_items(wanted: str | list[Json]) -> list[Json]:
    """`input` as a list of items. Raises `RequestFault` that names the first wrong field."""
    if isinstance(wanted, str):
        wanted = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": wanted}]}]
    if not wanted:
        raise RequestFault("invalid_request", "is empty", "input")
    if len(wanted) > MAX_ITEMS:
        raise RequestFault("invalid_request", f"{len(wanted)} items, at most {MAX_ITEMS}", "input")
    return [_checked(item, f"input[{index}]") for index, item in enumerate(wanted)]


def _checked(item: Json, path: str) -> Json:
    kind = item.get("type", "message" if "role" in item else None)
    check = _CHECKS.get(kind) if isinstance(kind, str) else None
    if check is None:
        raise RequestFault(
            "unsupported", f"{str(kind)[:64]!r} is not served, only {', '.join(_CHECKS)}", f"{path}.type"
        )
    check(item, path)
    _optional(item, path, "status", "in_progress", "completed", "incomplete")
    item = {**item, "type": kind, "id": _id_of(item, kind, path), "status": item.get("status") or "completed"}
    return {**item, "content": _as_parts(item)} if kind == "message" else item


def _as_parts(message: Json) -> list[Json]:
    """Content that came as text alone is listed as one part."""
    content = message["content"]
    if not isinstance(content, str):
        return cast("list[Json]", content)
    if message["role"] == "assistant":
        return [{"type": "output_text", "text": content, "annotations": []}]
    return [{"type": "input_text", "text": content}]


def _id_of(item: Json, kind: str, path: str) -> str:
    return _text(item, "id", path) if item.get("id") is not None else f"{_ID_PREFIX[kind]}_{secrets.token_hex(12)}"


def _message(item: Json, path: str) -> None:
    _known(item, path, "role", "content", "phase")
    role = _text(item, "role", path)
    if role not in ROLES:
        raise RequestFault("invalid_request", f"must be one of {', '.join(ROLES)}", f"{path}.role")
    _optional(item, path, "phase", "commentary", "final_answer")
    _content(item.get("content"), f"{path}.content")


def _function_call(item: Json, path: str) -> None:
    _known(item, path, "call_id", "name", "arguments")
    for name in ("call_id", "name", "arguments"):
        _text(item, name, path)


def _function_call_output(item: Json, path: str) -> None:
    _known(item, path, "call_id", "output")
    _text(item, "call_id", path)
    _content(item.get("output"), f"{path}.output")


def _reasoning(item: Json, path: str) -> None:
    _known(item, path, "summary", "content", "encrypted_content")
    if item.get("encrypted_content") is not None:
        raise RequestFault("unsupported", "nobody here can read it", f"{path}.encrypted_content")
    for name, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        for index, part in enumerate(_parts(item.get(name) or [], f"{path}.{name}")):
            _part(part, f"{path}.{name}[{index}]", kind)


_CHECKS: dict[str, Callable[[Json, str], None]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "reasoning": _reasoning,
}


def _content(content: Any, path: str) -> None:
    if isinstance(content, str):
        return
    for index, part in enumerate(_parts(content, path)):
        _part(part, f"{path}[{index}]", *_TEXT_PARTS, "refusal")


def _parts(parts: Any, path: str) -> list[Json]:
    if not isinstance(parts, list):
        raise RequestFault("invalid_request", "must be text or a list of parts", path)
    for index, part in enumerate(cast("list[Any]", parts)):
        if not isinstance(part, dict):
            raise RequestFault("invalid_request", "must be an object", f"{path}[{index}]")
    return cast("list[Json]", parts)


def _part(part: Json, path: str, *kinds: str) -> None:
    kind = part.get("type")
    if kind not in kinds:
        raise RequestFault("unsupported", f"{str(kind)[:64]!r} is not served, only {', '.join(kinds)}", f"{path}.type")
    name = "refusal" if kind == "refusal" else "text"
    _text(part, name, path)
    ignored = ("annotations", "logprobs") if kind == "output_text" else ()
    _refuse_others(part, path, "type", name, *ignored)


def _text(item: Json, name: str, path: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise RequestFault("invalid_request", "must be text", f"{path}.{name}")
    return value


def _optional(item: Json, path: str, name: str, *values: str) -> None:
    if item.get(name) not in (None, *values):
        raise RequestFault("invalid_request", f"must be one of {', '.join(values)}", f"{path}.{name}")


def _known(item: Json, path: str, *names: str) -> None:
    _refuse_others(item, path, "type", "id", "status", *names)


def _refuse_others(item: Json, path: str, *names: str) -> None:
    """Fields that ask for nothing pass."""
    for name, value in item.items():
        if name not in names and value is not None:
            raise RequestFault("unsupported", "is not served", f"{path}.{name[:64]}")
