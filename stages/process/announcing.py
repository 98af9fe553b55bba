"""What a process tells `headrace up`, which started it."""

import contextlib
import os

READY_FD_VARIABLE = "HEADRACE_READY_FD"
"""A pipe on which `headrace up` reads what its child says: `ready` or `waiting` at each change, `problem …`."""


def announce(text: str) -> None:
    """Tells `headrace up`, where that started this process: one line."""
    fd = os.environ.get(READY_FD_VARIABLE, "")
    if fd.isdigit():
        with contextlib.suppress(OSError):
            os.write(int(fd), " ".join(text.split()).encode() + b"\n")
