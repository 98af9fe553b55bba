"""Waiting for what has to come, with an end."""

import time
from collections.abc import Callable


def eventually(true: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits until `true()`; fails with `what` where that takes longer."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)
