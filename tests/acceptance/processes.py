"""The processes of a pipeline, and what signals do to them."""

import contextlib
import json
import signal
from collections.abc import Generator
from typing import Any

import psutil

from load.pipeline import Pipeline

STAGES = ("preprocess", "schedule", "inference", "postprocess")


def processes_of(pipeline: Pipeline, stage: str) -> list[psutil.Process]:
    """The running processes of a stage under `headrace up`, the oldest first."""
    children = psutil.Process(pipeline.process.pid).children()
    found = [child for child in children if _command(child)[-2:] == ["stage", stage]]
    return sorted(found, key=lambda process: process.create_time())


@contextlib.contextmanager
def stopped(*processes: psutil.Process) -> Generator[None]:
    """SIGSTOP for the length of the block, SIGCONT behind it whatever happens: a frozen process cannot be stopped."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


def events(pipeline: Pipeline, part: str, event: str) -> list[dict[str, Any]]:
    """The log lines of that event of all processes whose name contains `part`."""
    return [line for line in _lines(pipeline.log_of(part)) if line.get("event") == event]


def deaths(pipeline: Pipeline) -> list[dict[str, Any]]:
    """What the supervisor says of processes that ended: `child`, `status` (negative: a signal)."""
    return [line for line in _lines(pipeline.output) if line.get("event") == "child.died"]


def times_ready(pipeline: Pipeline, stage: str) -> int:
    """How often a process of the stage has become ready."""
    return len(events(pipeline, stage, "stage.ready"))


def _lines(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict)]  # pyright: ignore[reportUnnecessaryIsInstance]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
