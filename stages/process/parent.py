"""A child of `headrace up` ends with it, also when that is killed by a signal that nobody can catch."""

import ctypes
import os
import signal
import sys
import threading
import time

PARENT_VARIABLE = "HEADRACE_PARENT_PID"
PR_SET_PDEATHSIG = 1
LOOK_EVERY_S = 0.5


def die_with_parent() -> None:
    """Binds this process's life to the process in `HEADRACE_PARENT_PID`; nothing where that is not set."""
    parent = os.environ.get(PARENT_VARIABLE, "")
    if not parent.isdigit():
        return
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(int(parent),), name="parent", daemon=True).start()
    if os.getppid() != int(parent):  # it was gone before the kernel knew
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os._exit(1)
