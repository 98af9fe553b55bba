"""When a caller whose queue is full should come again."""

import math
import time

import structlog

from broker import subjects
from broker.connection import BrokerError, Connection
from broker.depths import Waiting, waiting

log = structlog.get_logger()

LEAST_S, MOST_S = 1, 60
FRESH_S = 1.0
KEPT = 10_000


class RetryAfter:
    """How long the queue of a tenant and model takes to drain, as the broker has it; asked at most once a second each.

    Until another request has room is a matter of luck; until the queue as it stands has drained is what a caller can
    plan with, and spreads those that were refused.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, tuple[float, int]] = {}

    async def seconds(self, tenant: str, slug: str) -> int:
        """From 1 to 60."""
        subject = subjects.request(tenant, slug)
        now = time.monotonic()
        known = self._known.get(subject)
        if known and now - known[0] < FRESH_S:
            return known[1]
        if len(self._known) >= KEPT:
            self._known.clear()
        # First the old value: of many that are refused at once only one asks.
        self._known[subject] = (now, known[1] if known else LEAST_S)
        try:
            queue = await waiting(self._connection, subjects.REQUESTS, subject)
        except BrokerError as error:
            log.debug("edge.queue_unknown", error=str(error))
            return self._known[subject][1]
        self._known[subject] = (now, drain_s(queue))
        return self._known[subject][1]


def drain_s(queue: Waiting) -> int:
    """Whole seconds in which the queue drains, from 1 to 60.

    All that stands in it came while its first request was waiting. As it is full, as much has left it in that time, so
    the rate is `depth / oldest_s`, and `depth / rate` the wait of the first one (Little's law): over all edges, of this
    tenant and model alone, and known to the broker exactly.
    """
    return whole_s(queue.oldest_s)


def whole_s(seconds: float) -> int:
    """As the header says it: rounded up, from 1 to 60."""
    return math.ceil(min(MOST_S, max(LEAST_S, seconds)))
