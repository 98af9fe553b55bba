"""Inference workers beside a pipeline, each on cores of its own."""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Generator, Sequence

import psutil

from broker.client import Headrace
from broker.connection import Inbound
from broker.subjects import worker as worker_subject
from load.pipeline import Pipeline
from schemas.codec import decode
from schemas.control import WorkerStatus
from stages.inference.hardware import allowed_cores

Process = subprocess.Popen[bytes]

READY_S = 150.0

BY_CACHE: dict[str, str] = {}
BY_LOAD = {"prefix_caching_hash_algo": "sha256"}
"""vLLM's own hashes: caches work as ever, but nobody outside can name a block, and so schedulers go by load alone."""


class WorkerDied(RuntimeError):
    """One of them did not come up."""


@contextlib.contextmanager
def engines(pipeline: Pipeline, count: int, block_tokens: int, options: dict[str, str]) -> Generator[list[Process]]:
    """`count` of them that share the cores of this machine evenly, none with another one's."""
    cores = allowed_cores()
    engine = ",".join(f"{name}={value}" for name, value in {"block_size": str(block_tokens), **options}.items())
    started: list[Process] = []
    try:
        for number in range(count):
            started.append(pipeline.start_stage("inference", engine="vllm", engine_options=engine))
            _bind(started[-1], cores[number::count] or cores)
        yield started
    finally:
        for process in started:
            process.terminate()  # together: each needs seconds to end, and the pipeline waits for one after the other


def _bind(process: Process, cores: list[int]) -> None:
    """Before it looks at the machine: it takes what it may use for all there is, and so do its threads."""
    if hasattr(psutil.Process, "cpu_affinity"):  # not on macOS
        psutil.Process(process.pid).cpu_affinity(cores)


async def workers_ready(client: Headrace, started: Sequence[Process]) -> list[str]:
    """The ids of these workers, once all take work. Raises `WorkerDied`."""
    ready: set[str] = set()
    enough = asyncio.Event()

    def on_heartbeat(message: Inbound) -> None:
        status = decode(WorkerStatus, message.data)
        if status.state == "ready":
            ready.add(status.worker)
        if len(ready) >= len(started):
            enough.set()

    subscription = await client.connection.listen(worker_subject("*", "*"), on_heartbeat)
    give_up_at = time.monotonic() + READY_S
    try:
        while not enough.is_set():
            if any(process.poll() is not None for process in started):
                raise WorkerDied("a worker ended before it was ready")
            if time.monotonic() > give_up_at:
                raise WorkerDied(f"{len(ready)} of {len(started)} workers are ready after {READY_S:.0f} s")
            await asyncio.sleep(0.1)
    finally:
        await subscription.close()
    return sorted(ready)
