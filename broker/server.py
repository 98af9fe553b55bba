"""A nats-server process of our own: the embedded broker of `headrace up`, and the real server under the tests."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import structlog

from broker import server_process
from broker.free_ports import free_port
from broker.server_process import ServerFailed

log = structlog.get_logger()

MIB = 1024 * 1024
MAX_FILE_STORE = 16 * 1024 * MIB
START_PATIENCE_S = 60.0
STOP_PATIENCE_S = 10.0
RELOAD_S = 0.2


class EmbeddedServer:
    """A nats-server on 127.0.0.1 with JetStream on file storage. Start it in the main thread.

    It ends with the process that started it, however that ends, and never shares its store with another server.
    """

    def __init__(self, store: Path, temporary: bool, options: dict[str, object], include: Path | None = None) -> None:
        self._store = store
        self._temporary = temporary
        self._options = options
        self._include = include.absolute() if include is not None else None
        self._port = int(str(options["port"])) or free_port()
        self._monitoring_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @classmethod
    async def start(
        cls,
        store: Path | None = None,
        *,
        port: int = 0,
        max_payload: int = 8 * MIB,
        max_file_store: int = MAX_FILE_STORE,
        max_memory_store: int = 256 * MIB,
        sync_interval: str = "2m",
        authorization: dict[str, object] | None = None,
        name: str = "headrace-embedded",
        cluster: dict[str, object] | None = None,
        include: Path | None = None,
    ) -> "EmbeddedServer":
        """Starts a server and returns once it takes connections.

        Sizes in bytes; `port` 0 takes a free one; `sync_interval` is NATS' own text (`2m`, `always`); `authorization`
        its block of users and their permissions, `cluster` that of its routes (`ClusterServer` makes one). `include` is
        a file with TLS and accounts (`identities`), which `reload` has read again. Without `store` the data lies in a
        temporary folder that `stop` removes. Raises `ServerFailed`.
        """
        folder = store or Path(tempfile.mkdtemp(prefix="headrace-nats-"))
        folder.mkdir(parents=True, exist_ok=True)
        options: dict[str, object] = {
            "port": port,
            "max_payload": max_payload,
            "max_file_store": max_file_store,
            "max_memory_store": max_memory_store,
            "sync_interval": sync_interval,
            "authorization": authorization,
            "server_name": name,
            "cluster": cluster,
        }
        server = cls(folder.resolve(), store is None, options, include)
        try:
            await server._launch()
        except BaseException:
            await server.stop()
            raise
        return server

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"{'tls' if self._include else 'nats'}://127.0.0.1:{self._port}"

    @property
    def monitoring_url(self) -> str:
        """Where the server tells of itself over HTTP (`/healthz`, `/jsz`)."""
        return f"http://127.0.0.1:{self._monitoring_port}"

    @property
    def pid(self) -> int:
        """The server's process. Raises `ServerFailed` when there is none."""
        if self._process is None:
            raise ServerFailed("the nats-server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    async def stop(self) -> None:
        """Ends the server in an orderly way (what it stored is on disk then); a temporary store is removed."""
        await self._end(signal.SIGTERM)
        if self._temporary:
            await asyncio.to_thread(shutil.rmtree, self._store, ignore_errors=True)

    async def kill(self) -> None:
        """Ends the server by SIGKILL, as a crash would. The store stays."""
        await self._end(signal.SIGKILL)

    async def restart(self) -> None:
        """Starts it again on the same store and the same ports; stops it first if it runs. Raises `ServerFailed`."""
        await self._end(signal.SIGTERM)
        await self._launch()

    async def reload(self) -> None:
        """Has it read its configuration again. Raises `ServerFailed` when it is not running.

        Twice: what an account imports that was not there before counts from the second time on (nats-server 2.15.1).
        """
        for _ in range(2):
            os.kill(self.pid, signal.SIGHUP)
            await asyncio.sleep(RELOAD_S)

    async def _launch(self) -> None:
        config = self._store / "nats-server.conf"
        lock = await server_process.lock(self._store, STOP_PATIENCE_S)
        try:
            config.write_text(self._config())
            with (self._store / "nats-server.stderr").open("wb") as stderr:
                command = [server_process.find_binary(), "-c", str(config)]
                self._process = server_process.spawn(command, stderr, lock)
        finally:
            os.close(lock)
        self._watcher = server_process.watch_parent(self._process.pid)
        await self._wait_until_ready(self._process)

    def _config(self) -> str:
        limits = {name: self._options[name] for name in ("max_file_store", "max_memory_store", "sync_interval")}
        blocks = {name: self._options[name] for name in ("authorization", "cluster") if self._options[name]}
        text = json.dumps(
            {
                **blocks,
                "listen": f"127.0.0.1:{self._port}",
                "http": f"127.0.0.1:{self._monitoring_port}",
                "server_name": self._options["server_name"],
                "max_payload": self._options["max_payload"],
                "ports_file_dir": str(self._store),
                "log_file": str(self._log_path),
                "logfile_size_limit": 8 * MIB,
                "jetstream": {"store_dir": str(self._store), **limits},
            },
            indent=2,
        )
        if not self._include:
            return text
        # The server takes the path from the folder of its configuration, whatever it looks like.
        return f'{text.removesuffix("}")}  include "{os.path.relpath(self._include, self._store)}"\n}}'

    @property
    def _log_path(self) -> Path:
        return self._store / "nats-server.log"

    async def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        ports = self._store / f"nats-server_{process.pid}.ports"
        try:
            async with asyncio.timeout(START_PATIENCE_S):
                while not self._read_ports(ports):
                    if process.poll() is not None:
                        raise ServerFailed(f"nats-server ended with {process.returncode}: {self._last_words()}")
                    await asyncio.sleep(0.005)
        except TimeoutError as error:
            raise ServerFailed(f"nats-server not ready in {START_PATIENCE_S:.0f} s: {self._last_words()}") from error
        finally:
            ports.unlink(missing_ok=True)
        log.debug("broker.embedded_started", url=self.url, pid=process.pid, store=str(self._store))

    def _read_ports(self, path: Path) -> bool:
        """Takes over the ports the server chose; it writes them when it is ready."""
        try:
            ports: dict[str, list[str]] = json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        self._port = int(ports["nats"][0].rpartition(":")[2])
        self._monitoring_port = int(ports["monitoring"][0].rpartition(":")[2])
        return True

    def _last_words(self) -> str:
        lines: list[str] = []
        for path in (self._log_path, self._store / "nats-server.stderr"):
            with contextlib.suppress(OSError):
                lines += path.read_text(errors="replace").splitlines()[-5:]
        return " | ".join(line.strip() for line in lines) or "it said nothing"

    async def _end(self, how: signal.Signals) -> None:
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.communicate()
            self._watcher = None
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        if not await server_process.ended(process, STOP_PATIENCE_S):
            process.kill()
            await server_process.ended(process, STOP_PATIENCE_S)
