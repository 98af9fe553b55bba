"""Which requests of this edge take long: those in hand, and the slowest of the last minutes. No text is kept."""

import heapq
import time
from collections.abc import Callable

import msgspec

from stages.edge.http.exchange import Exchange

MOST = 20
"""Requests that are kept, and shown, of one tenant."""

TENANTS = 256
WINDOW_S = 600.0

DIGITS = 8
"""Random ones that an id has behind an `X-Request-Id`."""


class Slow(msgspec.Struct, frozen=True, kw_only=True):
    """One request as its client saw it. `status` 0: it is in hand, and its tokens are not counted yet."""

    id: str
    model: str
    route: str
    seconds: float
    status: int
    outcome: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


class Recent:
    """Remembers requests that generate. Bounded: `MOST` of a tenant, `TENANTS` of them, `WINDOW_S` back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_hand: dict[int, Exchange] = {}
        self._ended: dict[str, list[tuple[float, Slow]]] = {}

    def began(self, exchange: Exchange) -> None:
        """One came; whether it generates anything shows later."""
        self._in_hand[id(exchange)] = exchange

    def ended(self, exchange: Exchange) -> None:
        """One is over."""
        del self._in_hand[id(exchange)]
        if not exchange.generates:
            return
        now, tenant = self._clock(), tenant_of(exchange)
        kept = self._ended.pop(tenant, [])
        self._ended[tenant] = _slowest([*_fresh(kept, now), (now, _slow(exchange, now))])
        if len(self._ended) > TENANTS:
            del self._ended[next(iter(self._ended))]  # the one of whom nothing was heard for longest

    def slowest(self, tenant: str) -> list[Slow]:
        """Of this tenant alone, the slowest first; those in hand count with what they have taken so far."""
        now = self._clock()
        running = [(now, _slow(exchange, now)) for exchange in self._of(tenant)]
        return [slow for _, slow in _slowest([*running, *_fresh(self._ended.get(tenant, []), now)])]

    def running(self) -> int:
        """How many are in hand, of all tenants."""
        return sum(exchange.generates for exchange in self._in_hand.values())

    def in_hand(self, tenant: str, name: str) -> Exchange | None:
        """The tenant's request of that id, or with that `X-Request-Id`."""
        return next((exchange for exchange in self._of(tenant) if _is_named(exchange.request_id, name)), None)

    def _of(self, tenant: str) -> list[Exchange]:
        return [each for each in self._in_hand.values() if each.generates and tenant_of(each) == tenant]


def tenant_of(exchange: Exchange) -> str:
    return exchange.caller.tenant if exchange.caller else "default"


def _is_named(request_id: str, name: str) -> bool:
    return request_id == name or (bool(name) and request_id[: -DIGITS - 1] == name)


def _slow(exchange: Exchange, now: float) -> Slow:
    return Slow(
        id=exchange.request_id,
        model=exchange.model,
        route=exchange.route,
        seconds=round(now - exchange.started, 3),
        status=exchange.status if exchange.route else 0,  # of a stream it is known long before its end
        outcome=exchange.outcome,
        input_tokens=exchange.input_tokens,
        output_tokens=exchange.output_tokens,
    )


def _fresh(kept: list[tuple[float, Slow]], now: float) -> list[tuple[float, Slow]]:
    return [(at, slow) for at, slow in kept if now - at < WINDOW_S]


def _slowest(kept: list[tuple[float, Slow]]) -> list[tuple[float, Slow]]:
    return heapq.nlargest(MOST, kept, key=lambda pair: pair[1].seconds)
