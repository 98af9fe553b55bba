"""One HTTP request and its answer, as everything on its way knows it: who asks, under which id, what it came to."""

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection
from starlette.types import Scope

if TYPE_CHECKING:
    from stages.edge.access.callers import Caller

KEY = "headrace.exchange"


@dataclass(slots=True)
class Exchange:
    """What becomes of one HTTP request. Routes fill in `model` (the slug), the tokens and what it ended with.

    `outcome` is a finish reason or a fault's code. `at_end` are called once the answer is out, or the client gone.
    """

    unwinds: bool = False
    """Whether `rest`, what is left to do when a route has returned, is done outside of all that surrounds routes."""

    rest: Callable[[], Awaitable[None]] | None = None

    started: float = field(default_factory=time.monotonic)
    began_at: float = field(default_factory=time.time)
    request_id: str = ""
    caller: "Caller | None" = None
    route: str = ""
    model: str = ""
    status: int = 0
    streamed: bool = False
    first_byte_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    outcome: str = ""
    generates: bool = False
    """Whether it asks a model for anything."""

    body_digest: str = ""
    at_end: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def count(self, input_tokens: int, output_tokens: int) -> None:
        """Adds the tokens of one choice's usage; the prompt counts once, however many choices there are."""
        self.input_tokens = max(self.input_tokens, input_tokens)
        self.output_tokens += output_tokens


def exchange_of(request: HTTPConnection) -> Exchange:
    """That of a request below the edge's own middleware; a new one elsewhere (tests)."""
    return exchange_in(request.scope)


def exchange_in(scope: Scope) -> Exchange:
    """The same, by the ASGI scope."""
    if KEY not in scope:
        scope[KEY] = Exchange()
    return scope[KEY]


def random_id() -> str:
    """A request's id where nothing else names it."""
    return secrets.token_hex(12)
