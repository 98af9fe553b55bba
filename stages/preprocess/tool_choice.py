"""Which tools a model is shown, which it has to call, and how its calls come out of its answer.

`required` and a named tool hold for any model whose engine serves structured output: the whole answer is the call then.
`auto` needs a model that is trained for tools, in a form that is known.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal, cast

from schemas.families import JSON_ARGUMENTS, JSON_LIST
from schemas.faults import RequestFault
from schemas.model import ModelCard
from schemas.request import Request
from schemas.ticket import Structured
from stages.preprocess.json_schema import MAX_SCHEMA, check_count, check_schema, schema_text

NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The parameters of a tool that names none, as OpenAI has it."""

MAX_PARTS_OF_TOOLS = 8000
"""Schemas within the parameters of all tools that a call may be of."""

Choice = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """`shown` goes to the template, which `must_know` tools; the rest as `AnswerSpec` and `EngineSampling` have it."""

    shown: list[dict[str, Any]] | None = None
    must_know: bool = False
    tools: str = ""
    name: str = ""
    structured: Structured | None = None


NO_TOOLS = ToolUse()


def tool_use(request: Request, card: ModelCard) -> ToolUse:
    """Of a request whose tools have names. Raises `RequestFault`."""
    chosen, name = _chosen(request.tool_choice)
    tools = request.tools or []
    if not tools:
        if name or chosen not in ("auto", "none") or request.tool_choice == "auto":
            raise RequestFault("invalid_request", "needs tools to choose from", "tool_choice")
        return NO_TOOLS
    if name:
        return _named(request, tools, name)
    if chosen == "none":
        return NO_TOOLS
    if chosen == "required":
        return _required(request, tools)
    return _auto(request, tools, card)


def _auto(request: Request, tools: list[dict[str, Any]], card: ModelCard) -> ToolUse:
    if request.split and not card.tool_parser:
        reason = (
            "it is not known how this model writes tool calls; tool_choice 'required', or one of them by name, works"
            if card.structured
            else "it is not known how this model writes tool calls"
        )
        raise RequestFault("unsupported", reason, "tools")
    return ToolUse(shown=tools, must_know=True, tools=card.tool_parser if request.split else "")


def _required(request: Request, tools: list[dict[str, Any]]) -> ToolUse:
    return ToolUse(
        shown=tools,
        tools=JSON_LIST if request.split else "",
        structured=Structured("json", _list_schema(tools, request.parallel_tool_calls), param="tools"),
    )


def _named(request: Request, tools: list[dict[str, Any]], name: str) -> ToolUse:
    for index, tool in enumerate(tools):
        if tool["function"]["name"] == name:
            schema = check_schema(_parameters(tool), _path(index))
            return ToolUse(
                shown=tools,
                tools=JSON_ARGUMENTS if request.split else "",
                name=name,
                structured=Structured("json", schema, param=_path(index)),
            )
    raise RequestFault("invalid_request", f"there is no tool {name[:64]!r}", "tool_choice")


def _chosen(choice: str | dict[str, Any] | None) -> tuple[Choice, str]:
    """The choice, or the name of one tool."""
    if choice is None:
        return "auto", ""
    if isinstance(choice, str):
        return (choice, "") if choice in ("auto", "none", "required") else ("auto", _name(choice))
    if choice.get("type") != "function":
        raise RequestFault("unsupported", "only a choice of type 'function' is served", "tool_choice.type")
    for name in choice:
        if name not in ("type", "function"):
            raise RequestFault("unsupported", "is not served", f"tool_choice.{name[:64]}")
    function: Any = choice.get("function")
    name: Any = cast("dict[str, Any]", function).get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise RequestFault("invalid_request", "needs the name of a tool", "tool_choice.function.name")
    return "auto", _name(name)


def _name(name: str) -> str:
    if not name:
        raise RequestFault("invalid_request", "needs the name of a tool", "tool_choice")
    return name


def _list_schema(tools: list[dict[str, Any]], parallel: bool) -> str:
    """A list of one call or more; each tool's parameters under a name of their own, so that references stay apart."""
    parameters = _short_parameters(tools)
    calls = [_call_schema(tool, index) for index, tool in enumerate(tools)]
    schema: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    if not parallel:
        schema["maxItems"] = 1
    schema["$defs"] = {f"tool{index}": _moved(part, index) for index, part in enumerate(parameters)}
    text = json.dumps(schema, ensure_ascii=False)
    _check_length(len(text))
    check_count(schema, "tools", MAX_PARTS_OF_TOOLS)
    for index, part in enumerate(parameters):
        check_schema(part, _path(index))
    return text


def _short_parameters(tools: list[dict[str, Any]]) -> list[Any]:
    """Those of all tools, before they are looked at: too long together, that would take long."""
    parameters: list[Any] = []
    length = 0
    for index, tool in enumerate(tools):
        parameters.append(_parameters(tool))
        length += len(schema_text(parameters[-1], _path(index)))
        _check_length(length)
    return parameters


def _check_length(length: int) -> None:
    if length > MAX_SCHEMA:
        raise RequestFault("invalid_request", f"{length} characters of parameters, at most {MAX_SCHEMA}", "tools")


def _call_schema(tool: dict[str, Any], index: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"const": tool["function"]["name"]},
            "parameters": {"$ref": f"#/$defs/tool{index}"},
        },
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


def _parameters(tool: dict[str, Any]) -> Any:
    given = tool["function"].get("parameters")
    return NO_ARGUMENTS if given is None or given == {} else given


def _path(index: int) -> str:
    return f"tools[{index}].function.parameters"


def _moved(schema: Any, index: int) -> Any:
    """The schema with its references leading to where it stands now."""
    if isinstance(schema, list):
        return [_moved(part, index) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    moved = {name: _moved(part, index) for name, part in cast("dict[str, Any]", schema).items()}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = f"#/$defs/tool{index}{reference[1:]}"
    return moved
