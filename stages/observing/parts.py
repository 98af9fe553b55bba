"""A look made of parts: who may not see one of them sees the others."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.connection import BrokerError, Connection, NotPermitted, Unavailable

T = TypeVar("T")

AGAIN_S = 15.0
"""A part that could not be had is left alone for so long: a broker that does not permit it answers nothing, each time
after seconds."""

HEARS_OF_IT_S = 0.05


class Parts:
    """Has each part looked at by itself, where it is `partly`; else whatever is raised goes through.

    `missing` says of each part that could not be had why, in a few words.
    """

    def __init__(self, connection: Connection, *, partly: bool) -> None:
        self._connection = connection
        self._partly = partly
        self._not_before: dict[str, float] = {}
        self.missing: dict[str, str] = {}

    async def have(self, part: str, subject: str, ask: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """What `ask` returns, or `otherwise`. `subject` is how that begins which it publishes to.

        Raises `Unavailable` where there is no broker.
        """
        if not self._partly:
            return await ask()
        if not self._connection.connected:
            raise Unavailable("no connection to the broker")
        if time.monotonic() < self._not_before.get(part, 0.0):
            return otherwise
        try:
            found = await self._unless_refused(subject, ask)
        except NotPermitted:
            self.lack(part, _not_permitted(subject))
            return otherwise
        except BrokerError as error:
            self.lack(part, str(error))
            return otherwise
        self.missing.pop(part, None)
        return found

    def heard(self, part: str, subject: str) -> None:
        """Looks whether the subscription to `subject` was refused."""
        if self._connection.refusals.has(subject):
            self.missing[part] = _not_permitted(subject)
        else:
            self.missing.pop(part, None)

    def lack(self, part: str, why: str) -> None:
        """Leaves it alone for a while."""
        self.missing[part] = why
        self._not_before[part] = time.monotonic() + AGAIN_S

    async def _unless_refused(self, subject: str, ask: Callable[[], Awaitable[T]]) -> T:
        """A refusal is heard at once, beside the answer that never comes."""
        if self._connection.refusals.has(subject):
            raise Unavailable(_not_permitted(subject))
        asking = asyncio.ensure_future(ask())
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=HEARS_OF_IT_S)
                if not asking.done() and self._connection.refusals.has(subject):
                    raise Unavailable(_not_permitted(subject))
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        return asking.result()


def _not_permitted(subject: str) -> str:
    return f"the broker does not permit {subject}"
