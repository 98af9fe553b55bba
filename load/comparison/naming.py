"""What a process is, from its command line: a stage, the broker, vLLM's engine core or its server, a gateway."""

import re
from typing import Literal, NamedTuple

Role = Literal["engine", "server", "broker", "client"]


class Kind(NamedTuple):
    """A name that replicas share, and whom its CPU time is counted for."""

    name: str
    role: Role


_KINDS: tuple[tuple[str, Kind], ...] = (
    (r"VLLM::EngineCore", Kind("engine-core", "engine")),
    (r"VLLM::Worker", Kind("engine-worker", "engine")),
    (r"VLLM::APIServer", Kind("vllm-api-server", "server")),
    (r"VLLM::DPCoordinator", Kind("vllm-coordinator", "server")),
    (r"load\.generate", Kind("generate", "client")),
    (r"nats-server", Kind("nats-server", "broker")),
    (r"stages\.cli stage inference", Kind("inference-front", "server")),
    (r"stages\.cli stage (\w+)", Kind(r"\1", "server")),
    (r"stages\.cli up", Kind("supervisor", "server")),
    (r"multiprocessing\.resource_tracker", Kind("resource-tracker", "server")),
    (r"smg::router|/smg launch", Kind("gateway", "server")),
    (r"vllm.* serve .*--grpc", Kind("servicer", "server")),
    (r"vllm.* serve ", Kind("vllm-server", "server")),
)
"""The first that is found in a command line counts. vLLM and smg put a title in the place of theirs."""

OTHER = Kind("other", "server")


def kind_of(command_line: str) -> Kind:
    """The kind of the process with this command line; `other` (a server) for one that nobody knows."""
    for pattern, kind in _KINDS:
        if found := re.search(pattern, command_line):
            return Kind(found.expand(kind.name), kind.role)
    return OTHER
