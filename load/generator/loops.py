"""When requests go out: a closed loop waits for answers, an open one for nobody."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

from load.generator.record import clock

AFTER_ERROR_S = 0.1
"""Who was refused in a closed loop waits so long: a server that refuses at once would be asked in a frenzy."""

Ask = Callable[[float], Coroutine[Any, Any, bool]]
"""Sends one request that was planned for that time (`clock`); returns at its end, with whether it was answered."""


class Budget:
    """How many requests may still go out; 0 is without an end."""

    def __init__(self, requests: int = 0) -> None:
        self._endless = not requests
        self._left = requests

    def take(self) -> bool:
        """Whether one more may go."""
        self._left -= 1
        return self._endless or self._left >= 0


class Loop(Protocol):
    """`run()` sends until it has sent enough, or is cancelled; what then still runs it lets go."""

    planned: list[float] | None
    """When requests were to go out, on `clock`; a closed loop has no such plan."""

    async def run(self) -> None: ...


class ClosedLoop:
    """Keeps so many requests running, begun one after the other within `ramp_s`."""

    def __init__(self, ask: Ask, concurrency: int, ramp_s: float, budget: Budget) -> None:
        self._ask = ask
        self._concurrency = concurrency
        self._ramp_s = ramp_s
        self._budget = budget
        self.planned: list[float] | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._concurrency):
                group.create_task(self._keep_asking(self._ramp_s * number / self._concurrency))

    async def _keep_asking(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        while self._budget.take():
            if not await self._ask(clock()):
                await asyncio.sleep(AFTER_ERROR_S)


class OpenLoop:
    """Sends at the planned `times` before `until_s`, whatever comes back; then waits `drain_s` for what still runs."""

    def __init__(self, ask: Ask, times: Iterator[float], until_s: float, drain_s: float, budget: Budget) -> None:
        self._ask = ask
        self._times = times
        self._until_s = until_s
        self._drain_s = drain_s
        self._budget = budget
        self._running: set[asyncio.Task[bool]] = set()
        self.planned: list[float] | None = []

    async def run(self) -> None:
        try:
            await self._send()
            if self._running:
                await asyncio.wait(self._running, timeout=self._drain_s)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _send(self) -> None:
        start = clock()
        planned = self.planned = list[float]()
        for at in self._times:
            if at >= self._until_s or not self._budget.take():
                return
            planned.append(start + at)
            await asyncio.sleep(max(start + at - clock(), 0))  # who is behind lets others run too, and is cancelled
            task = asyncio.create_task(self._ask(start + at))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
