"""A line on stderr while it runs: nothing where that is no terminal."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from load.generator.asking import Asking
from load.generator.record import clock

LOOK_S = 0.5


@contextlib.asynccontextmanager
async def shown_progress(asking: Asking, seconds: float, requests: int) -> AsyncGenerator[None, None]:
    """A bar over the `seconds` of the run, or (where that is open) over its `requests`."""
    if not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        task = asyncio.create_task(_show(progress, asking, seconds, requests))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _show(progress: Progress, asking: Asking, seconds: float, requests: int) -> None:
    bar = progress.add_task("", total=requests or seconds)
    start, before = clock(), 0
    while True:
        await asyncio.sleep(LOOK_S)
        events = asking.events
        ended = len(asking.records) - len(asking.running)
        text = f"{(events - before) / LOOK_S:7,.0f} events/s  {len(asking.running):4} in flight"
        text += f"  {ended:6,} ended  {sum(asking.errors.values())} errors"
        progress.update(bar, description=text, completed=ended if requests else clock() - start, refresh=True)
        before = events
