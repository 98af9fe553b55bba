"""Ports on loopback that stay free until their owner listens on them, and while it is down.

A port that the kernel chose (`bind` to 0) and that was given up again belongs to whoever is given it next: another
server, or any outgoing connection. So ours lie below the range the kernel chooses from, and every process that hands
out ports claims a block of them for as long as it lives.
"""

import random
import socket
import sys
from pathlib import Path

FIRST = 10_000
BLOCK = 100
KERNELS_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_KERNELS_FIRST = 32_768


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def free_ports(count: int) -> range:
    """So many ports in a row (at most `BLOCK`) that nobody listens on. Raises `OSError` where there are none.

    No other process that asks here gets them as long as this one lives; this one not before it has been through its
    whole block.
    """
    global _next  # noqa: PLW0603 - the block is the process's, as the ports are
    for _ in range(2 * BLOCK):
        if _next + count > BLOCK:
            _next = 0
        row = range(_block() + _next, _block() + _next + count)
        taken = [port for port in row if not _is_free(port)]
        _next += taken[-1] - row.start + 1 if taken else count
        if not taken:
            return row
    raise OSError(f"no {count} ports in a row are free")


_next = 0
_first: int | None = None


def _block() -> int:
    """The first port of this process's block."""
    global _first  # noqa: PLW0603
    if _first is None:
        _first = _claim_block()
    return _first


def _claim_block() -> int:
    starts = list(range(FIRST, _kernels_first() - BLOCK + 1, BLOCK))
    random.shuffle(starts)
    for start in starts:
        if sys.platform != "linux" or _claimed(f"\0headrace-ports-{start}"):
            return start
    raise OSError(f"every block of ports between {FIRST} and {_kernels_first()} belongs to another process")


def _claimed(name: str) -> bool:
    """Binds a name without a file, which goes with the process, however that ends."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(name)
    except OSError:
        claim.close()
        return False
    claim.detach()
    return True


def _kernels_first() -> int:
    """The first port that the kernel gives to whoever names none."""
    try:
        return int(KERNELS_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return USUAL_KERNELS_FIRST


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Connections of a server that is gone linger, and keep nobody from listening.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
