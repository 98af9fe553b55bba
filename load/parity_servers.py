"""Starts the two servers that are compared: the same model, the same engine options, one after the other."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import httpx

from load.parity_question import CONTEXT, MODEL
from load.pipeline import ROOT, Pipeline, terminate
from load.vllm_name import vllm_name
from stages.inference.bundled_model import bundled_model_path
from stages.inference.hardware import CPU_BLOCK_SIZE, CPU_SLOTS, detect, set_environment

START_S = 300.0
LOOK_S = 0.5
ENGINE = {"max_model_len": CONTEXT, "max_num_seqs": CPU_SLOTS, "block_size": CPU_BLOCK_SIZE, "dtype": "float32"}
"""What both engines are told; `headrace up` would choose the last three by itself on a CPU."""

TOOL_PARSER = "pythonic"
"""Without one, and `auto` with it, vLLM serves no tool choice at all."""


@contextlib.contextmanager
def vllm_serve(folder: Path, port: int) -> Generator[str]:
    """`vllm serve` of the bundled model; its URL. Everything it writes lies in `folder`."""
    options = [text for name, value in ENGINE.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(bundled_model_path()), *options]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--enforce-eager", "--enable-auto-tool-choice", "--tool-call-parser", TOOL_PARSER]
    with (folder / "vllm.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=_environ(folder), stdout=log, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until(f"{url}/health", process, folder / "vllm.log")
        yield url
    finally:
        terminate(process)


def _environ(folder: Path) -> dict[str, str]:
    """As our own worker sets it; and a name for the distribution, which the command line looks up."""
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    set_environment(detect(), environ)
    if named := vllm_name(folder):
        environ["PYTHONPATH"] = str(named)
    return environ


@contextlib.contextmanager
def headrace_up(folder: Path, port: int) -> Generator[str]:
    """`headrace up` with the bundled model; the URL of its edge."""
    arguments = ["--replicas", "edge=1", "--set", f"edge.port={port}"]
    for name, value in ENGINE.items():
        arguments += ["--engine-option", f"{name}={value}"]
    pipeline = Pipeline(folder, arguments, ready_s=START_S)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until(f"{url}/ready", pipeline.process, folder / "up.out")
        yield url
    finally:
        pipeline.stop()


def _wait_until(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until `url` answers with 200. Raises `RuntimeError` where the server ends, or takes too long."""
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, timeout=5).status_code == 200:
                return
        if process.poll() is not None:
            break
        time.sleep(LOOK_S)
    raise RuntimeError(f"{url} does not answer:\n{log.read_text(errors='replace')[-4000:]}")
