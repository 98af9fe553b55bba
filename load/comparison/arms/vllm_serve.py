"""The monolith: `vllm serve`, one process for HTTP, templates and text beside the engine core; or two, or tuned."""

import sys

from broker.free_ports import free_port
from load.comparison.arms.arm import Arm, Endpoint, answers
from load.comparison.setup import Setup, named_vllm


class VllmServe(Arm):
    """With options of its command line. A line of log for every request is left out, to its advantage."""

    def __init__(self, *options: str) -> None:
        super().__init__()
        self._options = options

    def start(self, setup: Setup) -> Endpoint:
        port, log = free_port(), setup.folder / "gpu.jsonl"
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", setup.model]
        command += ["--served-model-name", setup.name, "--host", "127.0.0.1", "--port", str(port)]
        command += [*setup.engine_flags(), "--disable-uvicorn-access-log", *self._options]
        server = self._run("vllm-serve", command, named_vllm(setup.environ(log), setup.folder), setup)
        url = f"http://127.0.0.1:{port}"
        server.wait_until(lambda: answers(url, setup.name))
        return Endpoint("http", url, setup.name, setup.gpu_logs(log.name))
