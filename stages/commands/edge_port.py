"""Where the edge of a `headrace up` listens: one port for all its replicas, and for no other pipeline."""

import errno
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from stages.process.child import ChildSpec
from stages.sections import load_stage_settings, stage_settings
from stages.settings import Problem, SettingsError, variable

EDGE_STAGE = "edge"
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 — compared, never bound
TRIED = 100
"""Ports after the default one that are tried before any free one is taken."""


@dataclass(frozen=True)
class EdgeAddress:
    """Where a client on this machine finds the OpenAI API, and whether it needs a key."""

    api_url: str
    needs_key: bool


class EdgePort:
    """Finds the port before the processes start, and keeps others off it until it is closed.

    Replicas share a port by SO_REUSEPORT; so would the edges of two pipelines of one user, and answer for each other.
    """

    def __init__(self, specs: list[ChildSpec], environ: Mapping[str, str]) -> None:
        """Raises `SettingsError` where a port that somebody chose is taken."""
        self.specs: list[ChildSpec] = specs
        self.address: EdgeAddress | None = None
        self._held: socket.socket | None = None
        edges = [spec for spec in specs if spec.stage == EDGE_STAGE]
        if edges:
            self._find(edges[0], environ)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held is not None:
            self._held.close()

    def _find(self, edge: ChildSpec, environ: Mapping[str, str]) -> None:
        environ = {**environ, **edge.environ}
        settings: Any = load_stage_settings(EDGE_STAGE, {}, environ).stage
        name = variable(stage_settings(EDGE_STAGE), "port")
        if environ.get(name):
            port = self._hold(settings.host, [settings.port])
        else:
            port = self._hold(settings.host, [*range(settings.port, settings.port + TRIED), 0])
        if not port:
            raise SettingsError([Problem(name, str(settings.port), "another process listens there")])
        self.specs = [spec.with_more({name: str(port)}) if spec.stage == EDGE_STAGE else spec for spec in self.specs]
        self.address = EdgeAddress(_api_url(settings, port), bool(settings.keys_file))

    def _hold(self, host: str, ports: Iterable[int]) -> int:
        """The first of `ports` that nobody has, 0 where all are taken.

        What else is wrong with the address is let pass: the edge finds it too, and says it.
        """
        for port in ports:
            try:
                self._held = _bind_alone(host, port)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                return port
            found = int(self._held.getsockname()[1])
            self._share()
            return found
        return 0

    def _share(self) -> None:
        """Bound alone, it proved that nobody is there; from now on our own processes may bind the port too.

        Linux passes no connection to a socket that does not listen; elsewhere it might, so there it is given up.
        """
        if self._held is not None and sys.platform == "linux":
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        elif self._held is not None:
            self._held.close()
            self._held = None


def _bind_alone(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # Connections of an earlier pipeline that linger do not count.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def _api_url(settings: Any, port: int) -> str:
    """As somebody on this machine types it."""
    host = "127.0.0.1" if settings.host in ANY_ADDRESS else settings.host
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.tls_cert else 'http'}://{shown}:{port}/v1"
