"""Three nats-servers of our own as one cluster on loopback: for tests and load of what survives a server's death."""

import asyncio
import contextlib
import json
import shutil
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.connection import BrokerOptions, Connection, Unavailable
from broker.free_ports import free_ports
from broker.jetstream_api import ApiError, call
from broker.server import EmbeddedServer
from broker.server_process import ServerFailed

SIZE = 3
START_PATIENCE_S = 60.0
LOOK_S = 0.05
MONITORING_TIMEOUT_S = 2.0

Options = Any
"""What `EmbeddedServer.start` takes besides `store`, `port`, `name` and `cluster`."""


class ClusterServer:
    """Clustered servers with JetStream, each with a store of its own; `servers[n]` is killed and restarted by itself.

    They end with the process that started them, however that ends.
    """

    def __init__(self, servers: list[EmbeddedServer], temporary: Path | None) -> None:
        self.servers = servers
        self._temporary = temporary

    @classmethod
    async def start(cls, store: Path | None = None, **options: Options) -> "ClusterServer":
        """Starts three and returns once they have a leader. Start it in the main thread.

        `options` are those of `EmbeddedServer.start`. Without `store` the data lies in a temporary folder that `stop`
        removes. Raises `ServerFailed`.
        """
        temporary = Path(tempfile.mkdtemp(prefix="headrace-cluster-")) if store is None else None
        folder = store or temporary or Path()
        ports = free_ports(SIZE)
        cluster = cls([], temporary)
        try:
            for number in range(SIZE):
                routes = {"cluster": _cluster_block(ports, number), "name": server_name(number)}
                cluster.servers.append(await EmbeddedServer.start(folder / str(number), **routes, **options))
            await cluster.wait_ready()
        except BaseException:
            await cluster.stop()
            raise
        return cluster

    @property
    def url(self) -> str:
        """Where clients connect: all servers, separated by commas."""
        return ",".join(server.url for server in self.servers)

    @property
    def running(self) -> list[int]:
        """The numbers of the servers that are there."""
        return [number for number, server in enumerate(self.servers) if server.running]

    async def wait_ready(self, patience_s: float = START_PATIENCE_S) -> None:
        """Returns once JetStream answers for the whole cluster. Raises `ServerFailed`."""
        try:
            async with asyncio.timeout(patience_s):
                connection = await Connection.open(BrokerOptions(url=self.url, name="headrace-cluster"), patience_s)
                try:
                    while not await _answers(connection):  # noqa: ASYNC110 - nobody tells us
                        await asyncio.sleep(LOOK_S)
                finally:
                    await connection.close()
        except (TimeoutError, Unavailable) as error:
            raise ServerFailed(f"the cluster has no leader after {patience_s:.0f} s") from error

    async def leader_of(self, stream: str) -> int:
        """The number of the server that leads `stream`. Raises `Unavailable` where none does."""
        connection = await Connection.open(BrokerOptions(url=self.url, name="headrace-cluster"), START_PATIENCE_S)
        try:
            info = await call(connection, f"STREAM.INFO.{stream}")
        finally:
            await connection.close()
        return _number(info["cluster"].get("leader", ""))

    async def meta_leader(self) -> int:
        """The number of the server that places and makes streams. Raises `Unavailable` where none does."""
        for number in self.running:
            with contextlib.suppress(OSError):
                state = await self.monitored(number, "/jsz")
                return _number(state.get("meta_cluster", {}).get("leader", ""))
        raise Unavailable("no server runs")

    async def current(self, number: int) -> bool:
        """Whether a server has everything again that its peers have."""
        try:
            return (await self.monitored(number, "/healthz"))["status"] == "ok"
        except OSError:
            return False

    async def monitored(self, number: int, path: str) -> dict[str, Any]:
        """What a server tells of itself over HTTP. Raises `OSError`."""
        return await asyncio.to_thread(_get, self.servers[number].monitoring_url + path)

    async def stop(self) -> None:
        """Ends all; temporary stores are removed."""
        await asyncio.gather(*(server.stop() for server in self.servers))
        if self._temporary is not None:
            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)


def server_name(number: int) -> str:
    """What server `number` calls itself in the cluster."""
    return f"headrace-{number}"


def _number(name: str) -> int:
    if not name:
        raise Unavailable("there is no leader")
    return int(name.rpartition("-")[2])


def _cluster_block(ports: Sequence[int], number: int) -> dict[str, object]:
    """All routes stand in every server's configuration: the meta group learns from them how many they are."""
    return {
        "name": "headrace",
        "listen": f"127.0.0.1:{ports[number]}",
        "routes": [f"nats://127.0.0.1:{port}" for port in ports],
    }


async def _answers(connection: Connection) -> bool:
    try:
        await call(connection, "INFO", timeout_s=1.0)
        await call(connection, "STREAM.NAMES", timeout_s=1.0)
    except (Unavailable, ApiError):
        return False
    return True


def _get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=MONITORING_TIMEOUT_S) as answer:  # noqa: S310 - our own server
        return json.load(answer)
