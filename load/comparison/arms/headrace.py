"""Headrace as a person starts it, `headrace up`, with vLLM's engine core in a process of its own."""

import sys
from typing import Literal

from broker.free_ports import free_port
from load.comparison.arms.arm import Arm, Endpoint, answers
from load.comparison.setup import Setup

QUEUE = 4096
"""Requests and tickets of one tenant, as `--max-num-seqs` is for the engine: those of all workloads fit."""

GPU_LOG = "gpu-{pid}.jsonl"
READY = "ready after"


class Headrace(Arm):
    """Clients speak NATS to its broker, or HTTP to an edge."""

    gpus = 8

    def __init__(self, target: Literal["nats", "http"]) -> None:
        super().__init__()
        self._target: Literal["nats", "http"] = target

    def start(self, setup: Setup) -> Endpoint:
        port = free_port()
        environ = setup.environ(setup.folder / GPU_LOG)
        environ.pop("HEADRACE_NATS_URL", None)
        environ["XDG_CACHE_HOME"] = str(setup.folder / "cache")
        server = self._run("headrace", [*self._command(setup), *self._edge(port)], environ, setup)
        server.wait_until(lambda: READY in server.out)
        url = next(line.split()[-1] for line in server.out.splitlines() if READY in line)
        if self._target == "http":
            url = f"http://127.0.0.1:{port}"
            server.wait_until(lambda: answers(url, setup.name))
        return Endpoint(self._target, url, setup.name, setup.gpu_logs("gpu-*.jsonl"))

    def _command(self, setup: Setup) -> list[str]:
        command = [sys.executable, "-m", "stages.cli", "up", "--model", setup.model, *setup.engine_settings()]
        command += ["--set", f"inference.served_name={setup.name}", "--set", "inference.engine_process=own"]
        command += ["--set", f"topology.requests_per_subject={QUEUE}", "--set", f"topology.tickets_per_subject={QUEUE}"]
        return [*command, "--logs", str(setup.folder / "logs"), "--replicas", f"inference={setup.gpus}"]

    def _edge(self, port: int) -> list[str]:
        if self._target == "nats":
            return ["--replicas", "edge=0"]
        return ["--replicas", "edge=1", "--set", f"edge.port={port}"]
