"""Whatever was raised while a request was served becomes the one error that its client gets."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Scope

from broker.connection import BrokerError
from schemas.faults import RequestFault
from stages.edge.http.errors import CLIENT_GONE, ApiError, ClientGone, api_error_of, error_of
from stages.edge.http.exchange import exchange_in
from stages.edge.http.headers import request_id_of

log = structlog.get_logger()

AGAIN_S = 2
"""`Retry-After` where the broker is away: it comes back within about a second, or somebody has to look."""

BUSY = ("busy",)


async def answer_failure(request: Request, error: Exception) -> Response:
    """FastAPI's handler for everything that a route may raise."""
    return (await error_for(request.scope, error)).response()


async def error_for(scope: Scope, error: BaseException, renames: Mapping[str, str] | None = None) -> ApiError:
    """The answer to `error`. What nobody foresaw is logged with its traceback; the client learns nothing of it."""
    answer = _known(error, renames)
    exchange = exchange_in(scope)
    if answer is None:
        request_id = request_id_of(HTTPConnection(scope))
        log.error("edge.failed", request_id=request_id, path=scope.get("path", ""), exc_info=error)
        answer = error_of("internal", "internal error")
    if answer.status in (429, 503) and "Retry-After" not in (answer.headers or {}):
        answer.headers = {**(answer.headers or {}), "Retry-After": str(await _retry_after(scope, answer))}
    exchange.outcome = answer.code or str(answer.status)
    return answer


def _known(error: BaseException, renames: Mapping[str, str] | None) -> ApiError | None:
    match error:
        case ApiError():
            answer = error
        case RequestFault():
            answer = api_error_of(error, renames)
        case RequestValidationError():
            answer = validation_error(error.errors(), error.body)
        case HTTPException():
            answer = _plain(error)
        case BrokerError():
            answer = error_of("unavailable", "the broker does not answer")
        case ClientGone():
            answer = ApiError(CLIENT_GONE, "the client is gone", code="client_gone")
        case asyncio.CancelledError():
            answer = error_of("unavailable", "this server stops; the request can be sent again")
        case _:
            answer = None
    return answer


MAX_NAME = 64
"""Characters of a field's name that go back to the client."""

NO_OBJECT = ("missing", "model_type", "model_attributes_type", "dict_type")
"""What pydantic calls a body that is empty, or a list."""


def _plain(error: HTTPException) -> ApiError:
    """The router's own: no such path, no such method."""
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "")
    message = {404: "there is no such path", 405: "the path has no such method"}.get(error.status_code, error.detail)
    return ApiError(error.status_code, message, code=code, headers=error.headers)


async def _retry_after(scope: Scope, answer: ApiError) -> int:
    """Seconds: for a full queue what it needs to drain, else a moment."""
    gateway = getattr(scope["app"].state, "gateway", None) if "app" in scope else None
    exchange = exchange_in(scope)
    if answer.code not in BUSY or gateway is None:
        return AGAIN_S
    tenant = exchange.caller.tenant if exchange.caller else "default"
    return await gateway.retry_after(tenant, exchange.model)


def validation_error(errors: Sequence[Any], body: Any) -> ApiError:
    """What pydantic found first, as 400 with the field's path as the client wrote it."""
    first = _most_telling(errors)
    kind, location = str(first.get("type", "")), tuple(first.get("loc", ()))
    place, parts = str(location[0]) if location else "", location[1:]
    param = _path(parts, body, missing=kind == "missing") if place == "body" else ".".join(map(str, parts))
    if kind == "extra_forbidden":
        return ApiError(400, f"{param}: is not known or not supported here", param=param, code="unknown_parameter")
    message = str(first.get("msg", "")).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "missing":
        message = "is required"
    if kind == "too_long":
        message = "{actual_length} items, at most {max_length} are served".format_map(first["ctx"])
    if not param and kind in NO_OBJECT:
        message = "the body has to be a JSON object"
    code = "unsupported" if kind == "unsupported" else "invalid_request"
    return ApiError(400, f"{param}: {message}" if param else message, param=param, code=code)


def _most_telling(errors: Sequence[Any]) -> dict[str, Any]:
    """Of the branches of a union the one that got furthest: its list is too long, or its place is the deepest one."""
    first = cast("dict[str, Any]", errors[0])
    field = tuple(first.get("loc", ()))[:2]
    same = [cast("dict[str, Any]", each) for each in errors if tuple(each.get("loc", ()))[:2] == field]
    return max(same, key=lambda each: (each.get("type") == "too_long", len(each.get("loc", ()))))


def _path(parts: Sequence[Any], body: Any, *, missing: bool) -> str:
    """`("messages", 0, "content", "str")` → `messages[0].content`: names of a union's branches are none of the body."""
    path, here = "", body
    for index, part in enumerate(parts):
        if isinstance(part, int) and isinstance(here, list):
            items = cast("list[Any]", here)
            path, here = f"{path}[{part}]", items[part] if part < len(items) else None
        elif isinstance(here, dict) and (part in here or (missing and index == len(parts) - 1)):
            name = str(part)[:MAX_NAME]
            path, here = f"{path}.{name}" if path else name, cast("dict[Any, Any]", here).get(part)
    return path
