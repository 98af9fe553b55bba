"""`/live`, `/ready` and `/metrics`, answered by threads of their own: a busy event loop delays no answer."""

import asyncio
import socketserver
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

BEAT_S = 0.5
STOP_LOOK_S = 0.1

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class Health:
    """What is known of this process. The event loop calls `beat`; any thread may ask.

    `live` is false once the loop stood still for `stall_s` seconds; `ready` says whether it can take work.
    """

    def __init__(self, stall_s: float = 10.0) -> None:
        self.stall_s = stall_s
        self._beat_at = time.monotonic()
        self.ready = False
        self.connected: Callable[[], bool] = lambda: True

    async def keep_beating(self) -> None:
        """Runs on the event loop until cancelled."""
        while True:
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_S)

    def live_answer(self) -> tuple[bool, str]:
        still = time.monotonic() - self._beat_at
        if still > self.stall_s:
            return False, f"the event loop stands still for {still:.1f} s"
        return True, "live"

    def ready_answer(self) -> tuple[bool, str]:
        if not self.ready:
            return False, "not ready"
        if not self.connected():
            return False, "no broker"
        return True, "ready"


class HealthServer:
    """The HTTP side of `Health`, on a thread that ends with the process."""

    def __init__(self, health: Health, registry: CollectorRegistry, host: str, port: int) -> None:
        """Listens at once. Raises `OSError` where the address is taken."""
        self._health = health
        self._registry = registry
        self._server = make_server(host, port, self._answer, _Server, _QuietHandler)
        self.port = self._server.server_port
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(STOP_LOOK_S,), name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return _respond(start, "200 OK", generate_latest(self._registry), CONTENT_TYPE_LATEST)
        if path in ("/live", "/ready"):
            good, text = self._health.live_answer() if path == "/live" else self._health.ready_answer()
            return _respond(start, "200 OK" if good else "503 Service Unavailable", f"{text}\n".encode())
        return _respond(start, "404 Not Found", b"/live /ready /metrics\n")


def _respond(
    start: StartResponse, status: str, body: bytes, content_type: str = "text/plain; charset=utf-8"
) -> list[bytes]:
    start(status, [("Content-Type", content_type), ("Content-Length", str(len(body)))])
    return [body]


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread per request: a slow scrape delays no liveness probe."""

    daemon_threads = True
    allow_reuse_address = True

    def server_bind(self) -> None:
        """Without the reverse lookup of the host's name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _QuietHandler(WSGIRequestHandler):
    timeout = 5  # s: a client that says nothing holds a thread no longer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — the base class's name
        pass

    def address_string(self) -> str:
        return str(self.client_address[0])
