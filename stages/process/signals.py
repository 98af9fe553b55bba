"""How a process is asked to stop: the first SIGTERM or SIGINT softly, the second at once, and softly only so long."""

import asyncio
import os
import signal
import threading
from types import FrameType

import structlog

log = structlog.get_logger()

ASKING = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Sets `stopping` on the first signal; ends the process with 128 + signal on the second, or after `grace_s`.

    The handlers run in the interpreter, not on the event loop: a second signal ends a process whose loop hangs.
    """

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.received = 0
        self._timer: threading.Timer | None = None

    def install(self, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
        """From now on signals count. Call it in the main thread."""
        self._loop = loop
        self._stopping = stopping
        for number in ASKING:
            signal.signal(number, self._on_signal)

    def settled(self) -> None:
        """The soft stop is through: time no longer counts."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.received:
            os._exit(128 + number)
        self.received = number
        self._timer = threading.Timer(self.grace_s, self._out_of_time)
        self._timer.daemon = True
        self._timer.start()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop_softly)  # a handler that logged could wait for itself

    def _stop_softly(self) -> None:
        log.info("stop.asked", signal=signal.Signals(self.received).name, grace_s=self.grace_s)
        self._stopping.set()

    def _out_of_time(self) -> None:
        log.error("stop.out_of_time", grace_s=self.grace_s)
        os._exit(128 + self.received)


def end_within(seconds: float, status: int) -> None:
    """Python waits for every thread at its end: one that hangs (an engine's step) may not keep the process."""
    last_resort = threading.Timer(seconds, os._exit, (status,))
    last_resort.daemon = True
    last_resort.start()
