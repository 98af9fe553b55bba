"""Who asks: the key of a request gives its tenant, the models it may use, and its limits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from schemas.model import ModelCard
from stages.edge.http.exchange import exchange_of

SCHEME = HTTPBearer(auto_error=False, description="An API key, where the edge has a file of keys.")


@dataclass(frozen=True)
class Caller:
    """Who asks. `models` None: all. Limits are those of one edge process; None: none.

    `concurrent` requests at once, `requests_per_minute` of them (POST: who polls for an answer is not counted again).
    """

    tenant: str = "default"
    name: str = ""
    models: frozenset[str] | None = None
    concurrent: int | None = None
    requests_per_minute: int | None = None

    def may_use(self, card: ModelCard) -> bool:
        """Whether this model is one of those allowed, by its name, an alias or its slug."""
        return self.models is None or not self.models.isdisjoint((card.slug, card.name, *card.aliases))


ANYBODY = Caller()
"""Everybody, where there are no keys."""


class Doorkeeper(Protocol):
    """Knows the keys and their limits."""

    def admit(self, authorization: str, at_end: list[Callable[[], None]], *, asks: bool = True) -> Caller:
        """The caller of a request with that `Authorization` header; what `at_end` gets is called when it is over."""
        ...

    def know(self, authorization: str) -> Caller:
        """The same, without its limits."""
        ...


def admit(request: Request) -> Caller:
    """The caller of this request, admitted once. Raises `ApiError` 401, or 429 at a limit of the key."""
    exchange = exchange_of(request)
    if exchange.caller is None:
        doorkeeper: Doorkeeper = request.app.state.gateway.doorkeeper
        authorization = request.headers.get("authorization", "")
        exchange.caller = doorkeeper.admit(authorization, exchange.at_end, asks=request.method == "POST")
    return exchange.caller


async def authenticated(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(SCHEME)]
) -> Caller:
    """The dependency for routes that only callers with a key may use."""
    return admit(request)


async def recognised(request: Request) -> Caller:
    """The dependency for what only callers with a key may look at: it counts against none of their limits."""
    exchange = exchange_of(request)
    doorkeeper: Doorkeeper = request.app.state.gateway.doorkeeper
    exchange.caller = doorkeeper.know(request.headers.get("authorization", ""))
    return exchange.caller


LookerDep = Annotated[Caller, Depends(recognised)]

CallerDep = Annotated[Caller, Depends(authenticated)]
