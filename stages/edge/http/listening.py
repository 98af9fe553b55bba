"""The socket that the edge listens on: one port for all replicas of a host, spread by the kernel."""

import socket
import ssl

import uvicorn

from stages.edge.http.connection import ClientConnection
from stages.edge.settings import EdgeSettings
from stages.settings import Problem, SettingsError, variable

BACKLOG = 2048


def listen(settings: EdgeSettings) -> socket.socket:
    """Bound, not yet accepting. Raises `SettingsError` where the address cannot be had."""
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise _problem("port", f"{settings.host}:{settings.port}", error.strerror or str(error)) from error
    listener.setblocking(False)
    return listener


def url_of(settings: EdgeSettings) -> str:
    """Where a client on this machine finds it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)  # noqa: S104 — compared, not bound
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{settings.port}"


def check_tls(settings: EdgeSettings) -> None:
    """Raises `SettingsError` for certificate files that cannot be used."""
    if settings.tls_key and not settings.tls_cert:
        raise _problem("tls_key", settings.tls_key, "needs tls_cert too")
    if not settings.tls_cert:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            settings.tls_cert, settings.tls_key or None, password=lambda: ""
        )
    except (OSError, ssl.SSLError) as error:
        raise _problem("tls_cert", settings.tls_cert, f"no usable certificate and key: {error}") from error


def configure(app: object, settings: EdgeSettings) -> uvicorn.Config:
    """Of uvicorn only what parses HTTP; log, signals and lifespan are this process's own."""
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType] — a FastAPI app is an ASGI application
        http=ClientConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=round(settings.idle_timeout_s),
        ssl_certfile=settings.tls_cert or None,
        ssl_keyfile=settings.tls_key or None,
    )


def _problem(name: str, value: str, allowed: str) -> SettingsError:
    return SettingsError([Problem(variable(EdgeSettings, name), value, allowed)])
