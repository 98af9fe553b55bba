"""A closed loop holds its concurrency; an open one its times."""

import asyncio
from itertools import count

import pytest

from load.generator.loops import Budget, ClosedLoop, OpenLoop
from load.generator.record import clock


class Asked:
    """Takes `seconds` for each request, and counts."""

    def __init__(self, seconds: float, *, works: bool = True) -> None:
        self._seconds = seconds
        self._works = works
        self.planned: list[float] = []
        self.running = self.most = self.cancelled = 0

    async def ask(self, planned: float) -> bool:
        self.planned.append(planned)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return self._works


async def test_closed() -> None:
    """Never more at once than asked for, all of them while there is something to send, and exactly the budget."""
    asked = Asked(0.005)
    await ClosedLoop(asked.ask, 4, 0.0, Budget(30)).run()
    assert (len(asked.planned), asked.most, asked.running) == (30, 4, 0)


async def test_ramp() -> None:
    """Requests of a closed loop begin one after the other, the last of them before the ramp is over."""
    asked = Asked(10)
    start = clock()
    task = asyncio.create_task(ClosedLoop(asked.ask, 5, 0.1, Budget()).run())
    await asyncio.sleep(0.2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    begun = [at - start for at in asked.planned]
    assert len(begun) == 5
    assert all(at >= 0.02 * number - 0.001 for number, at in enumerate(begun))
    assert asked.cancelled == 5


async def test_refused_in_a_closed_loop() -> None:
    """Who is refused at once does not ask in a frenzy."""
    asked = Asked(0, works=False)
    task = asyncio.create_task(ClosedLoop(asked.ask, 1, 0.0, Budget()).run())
    await asyncio.sleep(0.25)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 1 <= len(asked.planned) <= 4


async def test_open() -> None:
    """An open loop sends what is planned before its end, whether answers come or not, and waits for those that do."""
    asked = Asked(0.5)
    loop = OpenLoop(asked.ask, (number / 100 for number in count()), 0.05, 10, Budget())
    await loop.run()
    assert loop.planned is not None
    assert [at - loop.planned[0] for at in loop.planned] == pytest.approx([number / 100 for number in range(5)])
    assert asked.planned == loop.planned
    assert (asked.most, asked.cancelled) == (5, 0)


async def test_behind_and_let_go() -> None:
    """A loop that is behind for ever can still be cancelled."""
    asked = Asked(60)
    loop = OpenLoop(asked.ask, (0.0 for _ in count()), 1.0, 0.01, Budget())
    task = asyncio.create_task(loop.run())
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert asked.running == 0


async def test_drain_ends() -> None:
    """What is not answered within the drain is let go."""
    asked = Asked(60)
    await OpenLoop(asked.ask, iter([0.0, 0.001, 5.0]), 1.0, 0.01, Budget()).run()
    assert (len(asked.planned), asked.cancelled) == (2, 2)


async def test_open_budget() -> None:
    """So many requests and no more, whatever the times go on to say."""
    asked = Asked(0)
    await OpenLoop(asked.ask, (0.0 for _ in count()), float("inf"), float("inf"), Budget(7)).run()
    assert len(asked.planned) == 7
