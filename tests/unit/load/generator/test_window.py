"""The window opens behind the warm-up and closes where it has to."""

import asyncio

import pytest

from load.generator.window import NothingMeasured, Window


async def fails() -> None:
    await asyncio.sleep(0.01)
    raise RuntimeError("a defect")


async def test_after_a_time() -> None:
    """It lasts its duration, though the load goes on."""
    window, load = Window(), asyncio.create_task(asyncio.sleep(60))
    await window.measure(load, 0.02, 0.05)
    load.cancel()
    assert window.seconds >= 0.05
    assert window.holds(window.begin)
    assert not window.holds(window.end)


async def test_until_the_load_ends() -> None:
    """Without a duration it ends with the load."""
    window = Window()
    await window.measure(asyncio.create_task(asyncio.sleep(0.3)), 0.01, 0)
    assert window.seconds > 0


async def test_nothing_measured() -> None:
    """A load that ends within the warm-up measured nothing."""
    with pytest.raises(NothingMeasured, match="warm-up"):
        await Window().measure(asyncio.create_task(asyncio.sleep(0)), 5, 1)


async def test_a_defect_is_seen() -> None:
    """What ends the load with an error ends the run with it."""
    with pytest.raises(RuntimeError, match="a defect"):
        await Window().measure(asyncio.create_task(fails()), 0, 1)
