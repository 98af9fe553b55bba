"""The Shepherd Model Gateway: HTTP, templates and text in Rust, in front of a gRPC server around vLLM's engine core."""

import os

from broker.free_ports import free_port
from load.comparison.arms.arm import Arm, Endpoint, answers
from load.comparison.peers import Peer
from load.comparison.process import Started
from load.comparison.setup import Setup, named_vllm

GRACE_S = "2"

PROBE = """
import sys, time, grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
while True:
    try:
        with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            break
    except grpc.RpcError:
        pass
    time.sleep(0.5)
"""
"""Ends once the worker's gRPC health service says that it serves; run by the environment that has these packages."""


class Smg(Arm):
    """One gateway with its tokenizer caches on, one worker; both from an environment of their own."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer

    def start(self, setup: Setup) -> Endpoint:
        self._peer.install()
        log, worker_port, port = setup.folder / "gpu.jsonl", free_port(), free_port()
        environ = named_vllm(setup.environ(log), setup.folder)
        command = [self._peer.program("vllm"), "serve", setup.model, "--grpc", "--served-model-name", setup.name]
        command += ["--host", "127.0.0.1", "--port", str(worker_port), *setup.engine_flags()]
        command += ["--servicer-impl", self._peer.servicer]
        worker = self._run("servicer", command, environ, setup)
        # The gateway looks for its worker less and less often, up to 30 s apart: it starts when that is there.
        self._wait_until_serving(worker, worker_port, setup)
        gateway = self._run("gateway", self._gateway(setup, port, worker_port), environ, setup)
        url = f"http://127.0.0.1:{port}"
        gateway.wait_until(lambda: answers(url, setup.name))
        return Endpoint("http", url, setup.name, setup.gpu_logs(log.name))

    def _gateway(self, setup: Setup, port: int, worker_port: int) -> list[str]:
        command = [self._peer.program("smg"), "launch", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--worker-urls", f"grpc://127.0.0.1:{worker_port}", "--model-path", setup.model]
        command += ["--tokenizer-cache-enable-l0", "--tokenizer-cache-enable-l1", "--log-level", "warn"]
        command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
        return [*command, "--shutdown-grace-period-secs", GRACE_S]

    def _wait_until_serving(self, worker: Started, port: int, setup: Setup) -> None:
        command = [self._peer.program("python"), "-c", PROBE, str(port)]
        probe = Started("probe", command, os.environ, setup.folder)
        try:
            worker.wait_until(lambda: probe.ended)
        finally:
            probe.stop()
