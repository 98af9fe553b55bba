"""Ports that are still free when their owner comes to listen on them."""

import socket
import subprocess
import sys

from broker.free_ports import BLOCK, KERNELS_RANGE, free_port, free_ports

ASK = "from broker.free_ports import free_ports; print(*free_ports(50), flush=True); input()"


def test_the_kernel_gives_them_to_nobody_else() -> None:
    """An outgoing connection or a server on port 0 cannot get one: they lie below the kernel's range."""
    first = int(KERNELS_RANGE.read_text().split()[0])
    assert max(free_port() for _ in range(3 * BLOCK)) < first


def test_no_other_process_gets_the_same() -> None:
    """Processes that ask at the same time, and do not listen yet, get different ones."""
    asking = [
        subprocess.Popen([sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    try:
        given = [port for each in asking for port in (each.stdout.readline() if each.stdout else "").split()]
    finally:
        for each in asking:
            each.communicate("\n")
    assert len(given) == len(set(given)) == 6 * 50


def test_one_that_somebody_listens_on_is_passed_over() -> None:
    """However often one asks."""
    with socket.create_server(("127.0.0.1", free_port())) as server:
        taken = server.getsockname()[1]
        assert taken not in {free_port() for _ in range(2 * BLOCK)}


def test_a_row_is_free_as_a_whole() -> None:
    """Ports in a row, around those that are taken, and no port twice before all were given."""
    with socket.create_server(("127.0.0.1", free_ports(3)[1])) as server:
        taken = server.getsockname()[1]
        rows = [free_ports(7) for _ in range(BLOCK // 7 - 1)]
    given = [port for row in rows for port in row]
    assert taken not in given
    assert len(given) == len(set(given))
