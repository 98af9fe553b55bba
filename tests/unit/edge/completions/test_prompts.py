"""The answers to several prompts at once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from stages.edge.completions.prompts import BACKLOG, merged


class Source:
    """A stream of numbers that knows whether it was closed, and how far it went."""

    def __init__(self, count: int, fails: bool = False, waits: bool = False) -> None:
        self.count, self.fails, self.waits = count, fails, waits
        self.given = 0
        self.closed = False

    async def stream(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(0)
                self.given += 1
                yield number
            if self.fails:
                raise ValueError("broken")
            if self.waits:
                await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_everything_of_all_comes_in_order() -> None:
    """Nothing of any stream is lost, and each keeps its order."""
    sources = [Source(3), Source(0), Source(200)]
    found = [item async for item in merged([source.stream() for source in sources])]
    for index, source in enumerate(sources):
        assert [number for where, number in found if where == index] == list(range(source.count))
    assert all(source.closed for source in sources)


async def test_one_fault_ends_the_others() -> None:
    """The first fault is raised, and the other streams are closed by then: their requests are cancelled."""
    sources = [Source(1, waits=True), Source(2, fails=True)]
    with pytest.raises(ValueError, match="broken"):
        async for _ in merged([source.stream() for source in sources]):
            pass
    assert all(source.closed for source in sources)


async def test_leaving_closes_all() -> None:
    """Whoever leaves early has every stream closed, also those that wait for room."""
    sources = [Source(1, waits=True), Source(10_000)]
    async with aclosing(merged([source.stream() for source in sources])) as items:
        async for _ in items:
            break
    assert all(source.closed for source in sources)


async def test_a_slow_reader_bounds_what_waits() -> None:
    """Not more waits for the reader than the backlog, however fast the streams are."""
    source = Source(10_000)
    async with aclosing(merged([source.stream()])) as items:
        await anext(items)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert source.given <= BACKLOG + 3
