"""The embedded server: its store, its ports, and that it never outlives the process that started it."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import httpx
import pytest

from broker import server_process
from broker.connection import BrokerOptions, Connection
from broker.jetstream_api import call
from broker.server import EmbeddedServer, ServerFailed

PARENT = """
import asyncio, sys
from broker import server_process
from broker.server import EmbeddedServer

server_process.KERNEL_WATCHES_PARENT = sys.argv[1] == "kernel"

async def main():
    server = await EmbeddedServer.start()
    print(server.url, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_what_was_stored_survives_a_restart_and_a_kill(tmp_path: Path) -> None:
    """A given store keeps its data through `restart` after SIGKILL, and the server its address."""
    server = await EmbeddedServer.start(tmp_path)
    try:
        url, monitoring_url = server.url, server.monitoring_url
        connection = await Connection.open(BrokerOptions(url=url), patience_s=5)
        await call(connection, "STREAM.CREATE.KEPT", {"name": "KEPT", "subjects": ["kept"], "storage": "file"})
        await connection.request("kept", b"one", 2)
        await connection.close()
        await server.kill()
        await server.restart()
        assert (server.url, server.monitoring_url) == (url, monitoring_url)
        connection = await Connection.open(BrokerOptions(url=url), patience_s=5)
        assert (await call(connection, "STREAM.INFO.KEPT"))["state"]["messages"] == 1
        await connection.close()
    finally:
        await server.stop()
    assert server._store == tmp_path
    assert _has_data(tmp_path)


async def test_a_temporary_store_is_removed_at_stop() -> None:
    """Without a store of the user's nothing is left on disk."""
    server = await EmbeddedServer.start()
    store = server._store
    assert _has_data(store)
    await server.stop()
    assert not _has_data(store)
    assert not server.running


async def test_monitoring_says_that_it_is_healthy(server: EmbeddedServer) -> None:
    """The monitoring address is the server's own and answers."""
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{server.monitoring_url}/healthz")).json() == {"status": "ok"}


async def test_payloads_of_eight_megabytes_are_taken(connection: Connection) -> None:
    """The default `max_payload` is the one that the design names."""
    assert connection.client.max_payload == 8 * 1024 * 1024


async def test_two_servers_never_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second server on a store in use is refused with its path, and can start once the first has ended."""
    monkeypatch.setattr("broker.server.STOP_PATIENCE_S", 0.1)
    first = await EmbeddedServer.start(tmp_path)
    with pytest.raises(ServerFailed, match=f"another nats-server uses the store {tmp_path}"):
        await EmbeddedServer.start(tmp_path)
    await first.kill()
    second = await EmbeddedServer.start(tmp_path)
    await second.stop()


async def test_a_server_that_cannot_start_says_why(server: EmbeddedServer) -> None:
    """A port in use ends in an error with the server's own words, not in a wait."""
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ServerFailed, match="address already in use"):
        await EmbeddedServer.start(port=port)


@pytest.mark.parametrize("watched_by", ["kernel", "pipe"])
async def test_the_server_ends_with_a_parent_that_is_killed(watched_by: str, tmp_path: Path) -> None:
    """After SIGKILL of the process that started it, the server is gone within seconds: by both ways of noticing."""
    if watched_by == "kernel" and not server_process.KERNEL_WATCHES_PARENT:
        pytest.skip("only Linux tells a process of its parent's death")
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, watched_by),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    url = ""
    while not url.startswith("nats://"):
        url = (await asyncio.wait_for(parent.stdout.readline(), 20)).decode().strip()
    port = int(url.rpartition(":")[2])
    assert await _listens(port)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    deadline = time.monotonic() + 5
    while await _listens(port):
        assert time.monotonic() < deadline, "the server outlived its parent"
        await asyncio.sleep(0.02)


def _has_data(store: Path) -> bool:
    return (store / "jetstream").exists()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
