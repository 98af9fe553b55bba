"""Who comes in: a known key, within the limits of that key. Limits count in this process alone."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stages.edge.access.callers import ANYBODY, Caller
from stages.edge.http.errors import ApiError

UNAUTHORIZED = {"WWW-Authenticate": 'Bearer realm="headrace"'}


class Keys(Protocol):
    """Knows the keys; see `KeysFile`."""

    def caller_of(self, key: str) -> tuple[str, Caller] | None:
        """Digest and caller of a key."""
        ...


@dataclass
class KeyUse:
    """What one key does at the moment: requests that run, and how many may come at once (a token bucket)."""

    running: int = 0
    allowance: float = 0.0
    at: float = 0.0

    def take(self, per_minute: int, now: float) -> float:
        """Takes one request from the minute's allowance; 0, or the seconds until there is one."""
        rate = per_minute / 60
        fresh = self.at == 0.0
        self.allowance = per_minute if fresh else min(per_minute, self.allowance + (now - self.at) * rate)
        self.at = now
        if self.allowance < 1:
            return (1 - self.allowance) / rate
        self.allowance -= 1
        return 0.0


class Doorkeeper:
    """Admits callers. Without `keys` everybody is the tenant `default`."""

    def __init__(self, keys: Keys | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._uses: dict[str, KeyUse] = {}

    def admit(self, authorization: str, at_end: list[Callable[[], None]], *, asks: bool = True) -> Caller:
        """The caller of a request with that `Authorization` header; what `at_end` gets is called when it is over.

        Only what `asks` for something new counts by the minute. Raises `ApiError` 401 or 429.
        """
        if self._keys is None:
            return ANYBODY
        digest, caller = _known(self._keys, authorization)
        self._count(self._uses.setdefault(digest, KeyUse()), caller, at_end, asks=asks)
        return caller

    def know(self, authorization: str) -> Caller:
        """Who that is, for what costs next to nothing: it counts against no limit. Raises `ApiError` 401."""
        return ANYBODY if self._keys is None else _known(self._keys, authorization)[1]

    def _count(self, use: KeyUse, caller: Caller, at_end: list[Callable[[], None]], *, asks: bool) -> None:
        if caller.concurrent is not None and use.running >= caller.concurrent:
            raise _limited(f"this key may have {caller.concurrent} requests at once", 1.0)
        if asks and caller.requests_per_minute is not None:
            wait_s = use.take(caller.requests_per_minute, self._clock())
            if wait_s:
                raise _limited(f"this key may send {caller.requests_per_minute} requests a minute", wait_s)
        use.running += 1

        def leave() -> None:
            use.running -= 1

        at_end.append(leave)


def _known(keys: Keys, authorization: str) -> tuple[str, Caller]:
    """Digest and caller. Raises `ApiError` 401."""
    scheme, _, key = authorization.partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise ApiError(
            401, "an API key is needed: Authorization: Bearer <key>", code="missing_api_key", headers=UNAUTHORIZED
        )
    found = keys.caller_of(key.strip())
    if found is None:
        raise ApiError(401, "the API key is not known", code="invalid_api_key", headers=UNAUTHORIZED)
    return found


def _limited(message: str, wait_s: float) -> ApiError:
    headers = {"Retry-After": str(max(1, math.ceil(wait_s)))}
    return ApiError(429, message, code="rate_limit_exceeded", headers=headers)
