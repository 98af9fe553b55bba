"""What an arm has: it starts servers, says how they are reached, and leaves nothing behind."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx

from load.comparison.process import Started
from load.comparison.setup import Setup

ASK_S = 30.0


@dataclass(frozen=True)
class Endpoint:
    """What `load.generate` is told of a started arm. `environ` and `arguments` are for what it starts itself."""

    target: Literal["nats", "http", "engine"]
    url: str
    model: str
    gpu_logs: Sequence[Path]
    arguments: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict[str, str])


class Arm:
    """One system under test."""

    gpus = 1
    """The most GPUs that it can be started with."""

    def __init__(self) -> None:
        self._servers: list[Started] = []

    @property
    def roots(self) -> list[int]:
        """The processes that were started here; all others of the arm are their children."""
        return [server.pid for server in self._servers]

    def start(self, setup: Setup) -> Endpoint:
        """Returns once it answers. Raises `NotStarted`, and may then be half there: `stop` it all the same."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ends all that runs, in the opposite order."""
        while self._servers:
            self._servers.pop().stop()

    def _run(self, name: str, command: Sequence[str], environ: Mapping[str, str], setup: Setup) -> Started:
        server = Started(name, command, environ, setup.folder)
        self._servers.append(server)
        return server


def answers(url: str, model: str) -> bool:
    """Whether a chat completion of one token comes back: the whole way to the engine is there."""
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Are you there?"}]}
    with contextlib.suppress(httpx.TransportError):
        return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=ASK_S).is_success
    return False
