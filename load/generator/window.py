"""The part of a run that counts: behind the warm-up, until the end."""

import asyncio
import time
from dataclasses import dataclass, field

from load.generator.record import clock


class NothingMeasured(RuntimeError):
    """The run ended within its warm-up."""


@dataclass
class Window:
    """`begin` and `end` on `clock`; `unix` is what to add for Unix seconds. `cpu_s` is this process's own."""

    begin: float = 0.0
    end: float = 0.0
    cpu_s: float = 0.0
    unix: float = field(default_factory=lambda: time.time() - clock())

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def holds(self, at: float) -> bool:
        """Whether that moment lies in it."""
        return self.begin <= at < self.end

    async def measure(self, load: "asyncio.Task[None]", warm_up_s: float, duration_s: float) -> None:
        """Opens after the warm-up, closes after `duration_s`, or (0) when the load ends by itself.

        Raises what the load raises, `NothingMeasured` where it ends before the window opens.
        """
        done, _ = await asyncio.wait({load}, timeout=warm_up_s)
        if not done:
            cpu, self.begin = time.process_time(), clock()
            await asyncio.wait({load}, timeout=duration_s or None)
            self.cpu_s, self.end = time.process_time() - cpu, clock()
        if load.done():
            load.result()
        if not self.end:
            raise NothingMeasured(f"all requests ended within the warm-up of {warm_up_s:g} s")
