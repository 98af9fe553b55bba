"""What a step that failed says to whoever installs."""

from __future__ import annotations

import signal
import subprocess


def told(error: subprocess.CalledProcessError) -> str:
    """Return the step and why it failed, in words where the system killed it."""
    step = " ".join(map(str, error.cmd))
    if error.returncode == -signal.SIGKILL:
        # Nobody but the kernel sends this one unasked, and the step itself cannot say anything any more.
        return (
            f"This step was killed, probably because the machine ran out of memory: {step}\n"
            "Close what else takes memory, then simply try `make run` again: what is done already is kept."
        )
    return f"This step failed with exit status {error.returncode}: {step}"
