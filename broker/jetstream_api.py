"""Requests to JetStream's own API as plain JSON: exact, where client libraries drop fields they do not know."""

from typing import Any

import msgspec

from broker.connection import BrokerError, Connection, Unavailable

API = "$JS.API"
LIST_TIMEOUT_S = 6.0
"""A cluster waits 4 s for those of its servers that do not answer."""

STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
MESSAGE_NOT_FOUND = 10037
STREAM_EXISTS_DIFFERENTLY = 10058
CONSUMER_EXISTS_DIFFERENTLY = (10148, 10105)
NO_STORAGE = (10023, 10047)

Json = dict[str, Any]


class ApiError(BrokerError):
    """JetStream refused: `code` is like an HTTP status, `number` its own exact error code."""

    def __init__(self, endpoint: str, code: int, number: int, description: str) -> None:
        super().__init__(f"{endpoint}: {description} ({number})")
        self.code = code
        self.number = number
        self.description = description


async def call(connection: Connection, endpoint: str, body: Json | None = None, timeout_s: float = 5.0) -> Json:
    """The answer of `$JS.API.<endpoint>`. Raises `ApiError`, or `Unavailable` where JetStream does not answer."""
    payload = b"" if body is None else msgspec.json.encode(body)
    answer = await connection.request(f"{API}.{endpoint}", payload, timeout_s)
    try:
        return checked(endpoint, answer.data)
    except ApiError as error:
        if error.code == 503:  # no leader yet, still starting
            raise Unavailable(str(error)) from error
        raise


def checked(endpoint: str, data: bytes) -> Json:
    """The JSON object in an answer of JetStream. Raises `ApiError` for the error that it may hold."""
    try:
        answer = msgspec.json.decode(data, type=Json)
    except msgspec.DecodeError as error:
        raise Unavailable(f"{endpoint}: the answer is no JSON object ({error})") from error
    error = answer.get("error")
    if error is not None:
        raise ApiError(
            endpoint, int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", ""))
        )
    return answer


async def list_all(connection: Connection, endpoint: str, items: str, *, partly: bool = False) -> list[Json]:
    """All pages of one of JetStream's lists.

    A cluster leaves out what has no leader at the moment: raises `Unavailable` then, unless it may be listed `partly`.
    """
    found: list[Json] = []
    while True:
        page = await call(connection, endpoint, {"offset": len(found)}, timeout_s=LIST_TIMEOUT_S)
        if page.get("missing") and not partly:
            raise Unavailable(f"{endpoint}: nobody answers for {', '.join(page['missing'])}")
        found += page.get(items) or []
        if len(found) >= page.get("total", 0) or not page.get(items):
            return found
