"""OpenAI's error envelope, `{"error": {message, type, param, code}}`: every answer of the edge that is no success."""

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from schemas.faults import FAULTS, FaultCode, RequestFault
from stages.edge.http.retry_after import whole_s

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
CLIENT_GONE = 499
"""What nginx logs for a client that closed its connection; nobody receives it."""

RENAMES: Mapping[str, str] = {
    "template_options": "chat_template_kwargs",
    "include_stop": "include_stop_str_in_output",
}
"""Fields of `Request`, and what OpenAI and vLLM call them."""

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 499: "cancelled"}


class ErrorBody(BaseModel):
    """What went wrong. `param` names the field to change, `code` is for programs."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(BaseModel):
    """Every error has this form."""

    error: ErrorBody


RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorEnvelope, "description": "The request is wrong; `param` names the field."},
    401: {"model": ErrorEnvelope, "description": "No API key, or an unknown one."},
    404: {"model": ErrorEnvelope, "description": "No such model, or no such object."},
    408: {"model": ErrorEnvelope, "description": "The body came too slowly."},
    409: {"model": ErrorEnvelope, "description": "The `Idempotency-Key` was used for another request."},
    413: {"model": ErrorEnvelope, "description": "The body is larger than allowed."},
    415: {"model": ErrorEnvelope, "description": "The body is no `application/json`."},
    429: {"model": ErrorEnvelope, "description": "Busy, or a limit of the key; `Retry-After` says when to try again."},
    500: {"model": ErrorEnvelope, "description": "A fault of the server."},
    503: {"model": ErrorEnvelope, "description": "The broker is away, or the server stops; try again later."},
    504: {"model": ErrorEnvelope, "description": "The request's deadline passed."},
}
"""What a route that takes part in serving may answer, for its OpenAPI document."""


class ApiError(HTTPException):
    """An answer that is an error. Raise it anywhere below a route; `headers` go with it."""

    def __init__(  # noqa: PLR0917 — in the order of the envelope
        self,
        status: int,
        message: str,
        type: str = "",  # noqa: A002 — OpenAI's word for it
        param: str = "",
        code: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.status = status
        self.message = message
        self.type = type or TYPES.get(status) or (SERVER_ERROR if status >= 500 else INVALID_REQUEST)
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        """The envelope."""
        return envelope(self.message, self.type, self.param, self.code)

    def response(self) -> Response:
        """The whole HTTP answer."""
        return Response(msgspec.json.encode(self.body), self.status, self.headers, media_type="application/json")


class ClientGone(Exception):
    """The client closed its connection before it had its answer: nobody is there to be told."""


def envelope(message: str, type: str, param: str = "", code: str = "") -> dict[str, Any]:  # noqa: A002 — OpenAI's word
    """`{"error": …}`; a missing `param` or `code` is null."""
    error = {"message": _sendable(message), "type": type, "param": _sendable(param) or None, "code": code or None}
    return {"error": error}


def _sendable(text: str) -> str:
    """UTF-8 holds no lone surrogate, and a message may quote one."""
    return text.encode(errors="replace").decode()


def api_error_of(fault: RequestFault, renames: Mapping[str, str] | None = None) -> ApiError:
    """A fault as HTTP says it. `renames`: fields of `Request` as the client wrote them, beside those that all share."""
    policy = FAULTS[fault.code]
    param = renamed(fault.param, renames or {})
    message = f"{param}: {fault.message}" if param else fault.message
    again_s = fault.fault.retry_after
    headers = {"Retry-After": str(whole_s(again_s))} if again_s > 0 else None
    return ApiError(policy.http_status, message, policy.openai_type, param, fault.code, headers)


def error_of(code: FaultCode, message: str, param: str = "") -> ApiError:
    """The error of a fault that is found here. `param` is as the client wrote it."""
    return api_error_of(RequestFault(code, message, param))


def renamed(param: str, renames: Mapping[str, str]) -> str:
    """`sampling.logit_bias.7` → `logit_bias.7`, `template_options.x` → `chat_template_kwargs.x`: what stands inside a
    renamed field keeps its place. `renames` may name fields with `sampling.` or without."""
    names = sorted({**RENAMES, **renames}.items(), key=lambda pair: -len(pair[0]))  # the innermost name first
    flat = param.removeprefix("sampling.")
    for path in (param, flat):
        for name, new in names:
            if path == name or path.startswith((f"{name}.", f"{name}[")):
                return new + path[len(name) :]
    return flat
