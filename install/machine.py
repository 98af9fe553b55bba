"""What this machine lacks to run Headrace, and how to get it."""

from __future__ import annotations  # so that a Python too old for the rest still reaches the message

import ctypes
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENGINES = ("cpu", "gpu", "simulated")
OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 14)
# What an environment takes while it is made, downloads included.
DISK_GB = {"cpu": 6, "gpu": 20, "simulated": 1}


@dataclass(frozen=True)
class Missing:
    """Something that has to be there before the installation can begin."""

    what: str
    remedy: str


def missing(engine: str, folder: Path) -> list[Missing]:
    """List what is missing for an environment with `engine` (one of ENGINES) in `folder`."""
    return [*_python(), *_disk(engine, folder), *(() if engine == "simulated" else _vllm(engine))]


def _python() -> Iterator[Missing]:
    if not OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        yield Missing(
            f"Python 3.11 to 3.14 (this is {platform.python_version()})",
            "name one: make install PYTHON=python3.12",
        )
    if find_spec("venv") is None or find_spec("ensurepip") is None:
        yield Missing("Python's module venv", f"Debian, Ubuntu: apt-get install python3.{sys.version_info[1]}-venv")


def _disk(engine: str, folder: Path) -> Iterator[Missing]:
    free = shutil.disk_usage(folder).free / 1e9
    if not (folder / ".venv").exists() and free < DISK_GB[engine]:
        yield Missing(f"{DISK_GB[engine]} GB of free disk ({free:.1f} GB are free)", f"make room on {folder}")


def _vllm(engine: str) -> Iterator[Missing]:
    if sys.platform == "darwin":
        yield Missing("Linux (vLLM has no macOS wheel)", "run with the simulated engine: make run ENGINE=simulated")
    elif platform.machine() not in ("x86_64", "aarch64"):
        yield Missing(f"x86-64 or arm64 (this is {platform.machine()})", "make run ENGINE=simulated")
    elif engine == "gpu" and shutil.which("nvidia-smi") is None:
        yield Missing("an NVIDIA driver (nvidia-smi)", "install the driver, or run without ACCELERATOR=gpu")
    elif engine == "cpu" and not _loads("libnuma.so.1"):
        yield Missing("libnuma", "Debian, Ubuntu: apt-get install libnuma1; Fedora: dnf install numactl-libs")


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
