"""A response as JSON: what was asked for, and what has come of it so far. Shape: OpenAI's API reference, `Response`."""

from typing import Any

from schemas.faults import Fault, FaultCode
from schemas.result import Usage
from stages.edge.responses.asking import as_asked
from stages.edge.responses.stored import Json, StoredResponse

ECHOED: Json = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "temperature": None,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": None,
    "user": None,
}
"""What a response says again of its request, with what it says where the request left it out."""

ERROR_CODES: dict[FaultCode, str] = {
    "invalid_request": "invalid_prompt",
    "context_length_exceeded": "invalid_prompt",
    "unsupported": "invalid_prompt",
    "model_not_found": "invalid_prompt",
    "busy": "rate_limit_exceeded",
}
"""OpenAI's codes of a failed response are a closed list; what is not here is a `server_error`."""


def response_json(
    stored: StoredResponse,
    status: str,
    output: list[Json],
    *,
    usage: Usage | None = None,
    fault: Fault | None = None,
) -> Json:
    """The object `response`."""
    body = stored.body
    return {
        "id": stored.id,
        "object": "response",
        "created_at": stored.created_at,
        "status": status,
        "background": stored.background,
        "error": _error(fault) if status == "failed" and fault else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": body["model"],
        "output": output,
        **{name: body.get(name, default) for name, default in ECHOED.items()},
        "tools": [{"description": None, "parameters": None, "strict": None, **tool} for tool in body.get("tools", [])],
        "max_tool_calls": None,
        "reasoning": {"effort": None, "summary": None, **body.get("reasoning", {})},
        "service_tier": "default",
        "store": body.get("store", True),
        "text": {"format": {"type": "text"}, **body.get("text", {})},
        "truncation": "disabled",
        "usage": _usage(usage) if usage else None,
    }


def _error(fault: Fault) -> Json:
    fault = as_asked(fault)
    return {
        "code": ERROR_CODES.get(fault.code, "server_error"),
        "message": f"{fault.code}: {fault.message}",
        "param": fault.param or None,
        "type": fault.policy.openai_type,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    """Whatever is computed is cached."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
