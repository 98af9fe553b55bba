"""How a nats-server process is found, started so that it cannot outlive us, and kept alone on its store."""

import asyncio
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from broker.connection import BrokerError

# Linux tells a process of its parent's death; elsewhere a tiny shell watches a pipe that ends with the parent.
KERNEL_WATCHES_PARENT = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1

COLLECTS_RARELY = {"GOGC": "200", "GOMEMLIMIT": "1GiB"}
"""For Go's garbage collector: less of the CPU where small messages pass, unless that takes too much memory."""


class ServerFailed(BrokerError):
    """The nats-server could not be started, or ended by itself; the end of its log says why."""


def spawn(command: list[str], stderr: BinaryIO, lock: int) -> subprocess.Popen[bytes]:
    """Starts nats-server in the calling thread, whose end is what the kernel reports to it."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,  # Ctrl-C in a terminal is for the stages: they still need the broker
        pass_fds=(lock,),  # the store is taken for exactly as long as the server lives
        env=COLLECTS_RARELY | os.environ,
        preexec_fn=_end_with_parent(os.getpid()) if KERNEL_WATCHES_PARENT else None,  # noqa: PLW1509 - set-up only
    )


async def ended(process: subprocess.Popen[bytes], patience_s: float) -> bool:
    """Whether the process ends within `patience_s`."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while process.poll() is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.005)
    return True


async def lock(store: Path, patience_s: float) -> int:
    """Takes the store for one server; the kernel frees it with the last process that holds the descriptor."""
    descriptor = os.open(store / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # The server of a process that was killed a moment ago may still be closing the store.
            if asyncio.get_running_loop().time() > deadline:
                os.close(descriptor)
                raise ServerFailed(f"another nats-server uses the store {store}") from error
            await asyncio.sleep(0.02)
        else:
            return descriptor


def find_binary() -> str:
    """The nats-server of the environment that runs us, else the one in PATH. Raises `ServerFailed`."""
    here = Path(sys.executable).parent
    found = shutil.which("nats-server", path=str(here)) or shutil.which("nats-server")
    if found is None:
        raise ServerFailed("no nats-server: install the extra `embedded`, or name a broker with HEADRACE_NATS_URL")
    return found


def _end_with_parent(parent: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None)

    def in_child() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return in_child


def watch_parent(server: int) -> subprocess.Popen[bytes] | None:
    """Where the kernel does not do it: a shell that ends the server once the pipe from us ends. None on Linux."""
    if KERNEL_WATCHES_PARENT:
        return None
    script = 'read -r _; kill -TERM "$0"'
    return subprocess.Popen(["/bin/sh", "-c", script, str(server)], stdin=subprocess.PIPE, start_new_session=True)
