"""The body of a request: JSON and nothing else, refused in words where it is wrong, before a model looks at it."""

import hashlib
import json
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from stages.edge.access.callers import admit, authenticated
from stages.edge.http.errors import CLIENT_GONE, RESPONSES, ApiError, error_of
from stages.edge.http.exchange import exchange_of

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATES = re.compile("[\ud800-\udfff]")

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class JsonRequest(Request):
    """A request whose `json()` is strict: no NaN, no lone surrogates, no trailing text, and never another error."""

    async def body(self) -> bytes:
        """All of it. Raises `ApiError` (that of `Upload`, and 499 for a client that leaves before it has sent all)."""
        try:
            return await super().body()
        except ClientDisconnect:
            raise ApiError(CLIENT_GONE, "the client is gone", code="client_gone") from None

    async def json(self) -> Any:
        """The body. Raises `ApiError`."""
        data = await self.body()
        if "idempotency-key" in self.headers:
            exchange = exchange_of(self)
            exchange.body_digest = hashlib.sha256(data).hexdigest()
            exchange.request_id = ""  # it depends on that
        return parse_json(data)


class JsonRoute(APIRoute):
    """A route whose requests are `JsonRequest`, and whose body has to be declared as JSON."""

    def get_route_handler(self) -> Handler:
        """As FastAPI's own; see its page "Custom Request and APIRoute class"."""
        handle = super().get_route_handler()
        has_body = self.body_field is not None
        has_callers = any(each.call is authenticated for each in self.dependant.dependencies)

        async def handle_json(request: Request) -> Response:
            if has_callers:
                admit(request)  # who may not ask is told before the body is read
            if has_body:
                check_content_type(request.headers.get("content-type", ""))
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json


def json_router(**options: Any) -> APIRouter:
    """A router for routes that take JSON, with the errors that they may answer in its OpenAPI document."""
    return APIRouter(route_class=JsonRoute, responses=RESPONSES, **options)


def check_content_type(text: str) -> None:
    """Raises `ApiError` 415."""
    plain = text.partition(";")[0].strip().lower()
    if plain != "application/json" and not (plain.startswith("application/") and plain.endswith("+json")):
        raise ApiError(415, f"Content-Type must be application/json, not {plain[:80]!r}", code="unsupported_media_type")


def parse_json(data: bytes) -> Any:
    """The JSON value in `data`. Raises `ApiError` 400, with field and offset for text that is no valid Unicode."""
    if not data:
        raise _bad_json("the body is empty")
    try:
        return msgspec.json.decode(data)
    except UnicodeDecodeError as error:
        raise _bad_json(f"the body is no UTF-8: {error.reason}") from None
    except RecursionError:
        raise _bad_json("the body is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        if _SURROGATE.search(data):
            _refuse_lone_surrogate(data)
        raise _bad_json(f"the body is no JSON: {str(error).partition(' - at ')[0]}") from None


def _refuse_lone_surrogate(data: bytes) -> None:
    """Raises `ApiError` that names the place of the first one, if there is one."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    for path, text in _strings_in(value, ""):
        found = _SURROGATES.search(text)
        if found:
            message = f"no valid Unicode: a lone surrogate at character {found.start()}"
            raise error_of("invalid_request", message, path)


def _strings_in(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every string with its path; a key under that of the object it is in."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield path or "the body", key
            yield from _strings_in(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _strings_in(item, f"{path}[{index}]")


def _bad_json(message: str) -> ApiError:
    return ApiError(400, message, code="invalid_json")
