"""How a tool ends that is asked to: SIGTERM and SIGHUP do what Ctrl-C does, and all that was started ends with it."""

import contextlib
import signal
import sys
from collections.abc import Generator

ASKING = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ends_when_asked(tool: str) -> Generator[None]:
    """In the block a signal is a `KeyboardInterrupt`; behind it one line on stderr and the status 128 + signal.

    Each of them becomes a SIGINT: that is what asyncio turns into a cancel of what runs, so that it ends in order.
    Raises `SystemExit`. Call it in the main thread.
    """
    received: list[signal.Signals] = []

    def pass_on(number: int, _: object) -> None:
        received.append(signal.Signals(number))
        signal.raise_signal(signal.SIGINT)

    with _handled(pass_on):
        try:
            yield
        except KeyboardInterrupt:
            _leave(tool, received[0] if received else signal.SIGINT)
        except Exception:
            if not received:
                raise
            _leave(tool, received[0])  # what breaks on the way out is no news


@contextlib.contextmanager
def _handled(pass_on: "signal._HANDLER") -> Generator[None]:
    """Who ignores a signal (`nohup`) goes on to; SIGINT is needed, which a shell's background jobs ignore."""
    heard = [number for number in ASKING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in heard}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(tool: str, number: signal.Signals) -> None:
    print(f"{tool}: ended by {number.name}", file=sys.stderr, flush=True)
    raise SystemExit(128 + number) from None
