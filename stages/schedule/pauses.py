"""Notices when this process stood still or was cut off from the broker, and says what it may then no longer believe."""

from typing import Protocol

import structlog

STANDSTILL_S = 1.0
HEARTBEAT_ROUND_S = 1.0
PULL_AFTER_RECONNECT_S = 3.0
"""Workers keep their tickets alive every 3 s: before that, a broker that was down would hand out what is running."""

log = structlog.get_logger()


class Link(Protocol):
    """The connection, as far as this file looks at it. `lost_at` is on the event loop's clock."""

    @property
    def lost_at(self) -> float: ...

    reconnects: int

    @property
    def connected(self) -> bool: ...


class Pauses:
    """`look()` has to be called several times a second, and before anything is judged or granted."""

    def __init__(self, link: Link, ack_wait_s: float, now: float) -> None:
        self._link = link
        self._reconnects = link.reconnects
        self._forget_after = max(ack_wait_s - 1.0, ack_wait_s / 2)
        self._looked_at = now
        self._judge_from = now + HEARTBEAT_ROUND_S
        self._pull_from = now
        self._forgotten = False

    def look(self, now: float) -> bool:
        """Whether a pause was so long that everything held has to be forgotten, once for every pause."""
        stood_still = now - self._looked_at
        self._looked_at = now
        if stood_still > STANDSTILL_S:
            log.warning("schedule.stood_still", seconds=round(stood_still, 2))
            self._judge_from = now + HEARTBEAT_ROUND_S
        return self._cut_off(now) or stood_still > self._forget_after

    def may_judge(self, now: float) -> bool:
        """Whether a silent worker's silence is its own."""
        return self._link.connected and now >= self._judge_from

    @property
    def undisturbed_since(self) -> float:
        """When this process last stood still or was cut off, or began: silence from before may be its own."""
        return self._judge_from - HEARTBEAT_ROUND_S

    def may_pull(self, now: float) -> bool:
        return self._link.connected and now >= self._pull_from

    def _cut_off(self, now: float) -> bool:
        """Follows the connection; True once when it has been gone for too long."""
        if self._link.connected and self._link.reconnects == self._reconnects:
            self._forgotten = False
            return False
        # Also while it is down: the client calls itself connected a moment before it counts the reconnect.
        self._reconnects = self._link.reconnects
        self._judge_from = now + HEARTBEAT_ROUND_S
        self._pull_from = now + PULL_AFTER_RECONNECT_S
        return self._forget_once(now)

    def _forget_once(self, now: float) -> bool:
        if self._forgotten or now - self._link.lost_at <= self._forget_after:
            return False
        self._forgotten = True
        return True
