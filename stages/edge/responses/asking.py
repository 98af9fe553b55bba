"""What a response asks for, as the options of a request to Headrace. Pure."""

from typing import Any

from schemas.faults import Fault, RequestFault
from stages.edge.http.errors import ApiError, api_error_of, renamed
from stages.edge.responses.body import LOGPROBS, CreateResponse, TextFormat
from stages.edge.responses.conversation import messages_of
from stages.edge.responses.items import Json

AS_THEY_ARE = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "min_tokens", "ignore_eos",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "skip_special_tokens",
    "parallel_tool_calls", "priority", "cache_salt", "deadline_s",
)  # fmt: skip

RENAMED = {"max_output_tokens": "max_tokens", "include_stop_str_in_output": "include_stop"}

RENAMES = {
    "sampling.max_tokens": "max_output_tokens",
    "sampling.logprobs": "top_logprobs",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "template_options.reasoning_effort": "reasoning.effort",
    "template_options.enable_thinking": "reasoning.effort",
}
"""Fields of `Request` that are called otherwise here; the rest is as in `errors`."""


def as_asked(fault: Fault) -> Fault:
    """The fault with its field as the client wrote it. A message of the chat may come from several items."""
    param = renamed(fault.param, RENAMES)
    if param.startswith("messages"):
        param = "input"
    if param.startswith("tools["):
        param = param.replace("].function", "]", 1)
    return Fault(fault.code, fault.message, param, fault.retry_after)


def api_error(fault: Fault) -> ApiError:
    """The fault as HTTP says it."""
    asked = as_asked(fault)
    return api_error_of(RequestFault(asked.code, asked.message, asked.param, asked.retry_after))


def options_of(body: CreateResponse, items: list[Json]) -> dict[str, Any]:
    """The arguments of `Headrace.stream`. Raises `RequestFault` for what is not served."""
    given = body.model_dump(include={*AS_THEY_ARE, *RENAMED}, exclude_none=True)
    options = {RENAMED.get(name, name): value for name, value in given.items()}
    options |= {"model": body.model or "", "messages": messages_of(items, body.instructions)}
    options |= _tools(body) | _template_options(body)
    if body.user or body.safety_identifier:
        options["user"] = body.user or body.safety_identifier
    if body.text and body.text.format and body.text.format.type != "text":
        options["response_format"] = _response_format(body.text.format)
    if wants_logprobs(body):
        options["logprobs"] = body.top_logprobs or 0
    return options


def wants_logprobs(body: CreateResponse) -> bool:
    """Raises `RequestFault` for what else cannot be included."""
    for index, name in enumerate(body.include or []):
        if name != LOGPROBS:
            raise RequestFault("unsupported", f"{name[:64]!r} is not served, only {LOGPROBS!r}", f"include[{index}]")
    if body.top_logprobs and not body.include:
        raise RequestFault("invalid_request", f"needs {LOGPROBS!r} in include", "top_logprobs")
    return bool(body.include)


def _response_format(wanted: TextFormat) -> Json:
    if wanted.type == "json_object":
        return {"type": "json_object"}
    if wanted.json_schema is None:
        raise RequestFault("invalid_request", "is missing", "text.format.schema")
    named = {"name": wanted.name, "description": wanted.description, "strict": wanted.strict}
    schema = {name: value for name, value in named.items() if value is not None}
    return {"type": "json_schema", "json_schema": {**schema, "schema": wanted.json_schema}}


def _template_options(body: CreateResponse) -> dict[str, Any]:
    """As vLLM: the effort under its own name, and `none` turns the thoughts of those off that ask for that."""
    options: dict[str, Any] = {}
    if body.reasoning and body.reasoning.effort:
        options["reasoning_effort"] = body.reasoning.effort
        if body.reasoning.effort == "none":
            options["enable_thinking"] = False
    options |= body.chat_template_kwargs or {}
    return {"template_options": options} if options else {}


def _tools(body: CreateResponse) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if body.tools:
        options["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.tools)]
    if body.tool_choice is not None:
        options["tool_choice"] = _tool_choice(body.tool_choice)
    return options


def _tool(tool: Json, path: str) -> Json:
    if tool.get("type") != "function":
        kind = str(tool.get("type"))[:64]
        raise RequestFault("unsupported", f"{kind!r} is not served, only 'function'", f"{path}.type")
    for name, value in tool.items():
        if name not in ("type", "name", "description", "parameters", "strict") and value not in (None, False):
            raise RequestFault("unsupported", "is not served", f"{path}.{name[:64]}")
    if not isinstance(tool.get("name"), str):
        raise RequestFault("invalid_request", "must be text", f"{path}.name")
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}


def _tool_choice(choice: str | Json) -> str | Json:
    if isinstance(choice, str):
        return choice
    if choice.get("type") != "function":
        kind = str(choice.get("type"))[:64]
        raise RequestFault("unsupported", f"{kind!r} is not served, only 'function'", "tool_choice.type")
    return {"type": "function", "function": {"name": choice.get("name")}}
