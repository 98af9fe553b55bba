"""What is chosen for this machine, and that the user's word goes over it."""

from pathlib import Path

import pytest

from stages.inference.hardware import (
    GIB,
    Hardware,
    core_list,
    cpu_dtype,
    cpu_kv_bytes,
    cpu_quota,
    detect,
    has_bfloat16,
    set_environment,
)

CPU = Hardware(kind="cpu", cores=[0, 1, 2, 3], threads=2, free_bytes=16 * GIB, bfloat16=True)


def test_environment_for_a_cpu() -> None:
    """No compiling, as many threads as it may use, none that spin; all in the environment and reported."""
    environ: dict[str, str] = {}
    chosen = set_environment(CPU, environ)
    assert environ == chosen
    assert chosen["TORCHDYNAMO_DISABLE"] == "1"
    assert (chosen["OMP_NUM_THREADS"], chosen["VLLM_CPU_OMP_THREADS_BIND"]) == ("2", "0-1")
    assert chosen["GOMP_SPINCOUNT"] == "3000"
    assert chosen["VLLM_LOGGING_STREAM"] == "ext://sys.stderr"


def test_the_user_chose() -> None:
    """What is set stays, an empty variable counts as not set; a word on waiting covers spinning."""
    environ = {"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "active", "VLLM_LOGGING_LEVEL": ""}
    chosen = set_environment(CPU, environ)
    assert environ["OMP_NUM_THREADS"] == "7"
    assert not {"OMP_NUM_THREADS", "GOMP_SPINCOUNT"} & set(chosen)
    assert chosen["VLLM_LOGGING_LEVEL"] == "ERROR"


def test_environment_for_a_gpu() -> None:
    """None of the switches for CPUs."""
    chosen = set_environment(Hardware("gpu", [0], 1, GIB, bfloat16=False), {})
    assert set(chosen) == {
        "VLLM_NO_USAGE_STATS",
        "VLLM_LOGGING_LEVEL",
        "VLLM_LOGGING_STREAM",
        "VLLM_XGRAMMAR_CACHE_MB",
    }


@pytest.mark.parametrize(
    ("bfloat16", "checkpoint", "dtype"),
    [
        (True, "bfloat16", "bfloat16"),
        (True, "float32", "float32"),
        (False, "bfloat16", "float32"),
        (True, "", "bfloat16"),
    ],
)
def test_precision(bfloat16: bool, checkpoint: str, dtype: str) -> None:
    """bfloat16 only with kernels for it, and never for weights in float32."""
    assert cpu_dtype(Hardware("cpu", [0], 1, GIB, bfloat16), checkpoint) == dtype


def test_kv_cache() -> None:
    """1 GiB, less on a small machine."""
    assert cpu_kv_bytes(CPU) == GIB
    assert cpu_kv_bytes(Hardware("cpu", [0], 1, 2 * GIB, bfloat16=False)) == GIB // 2


def test_core_lists() -> None:
    """In the form that vLLM reads."""
    assert core_list([0, 1, 2, 3, 6]) == "0-3,6"
    assert core_list([5]) == "5"
    assert core_list([0, 2, 3]) == "0,2-3"


@pytest.mark.parametrize(("text", "cores"), [("150000 100000", 1.5), ("max 100000", 0.0), ("", 0.0)])
def test_quota_of_a_container(tmp_path: Path, text: str, cores: float) -> None:
    """A container's limit in cores, 0 where there is none."""
    (tmp_path / "cpu.max").write_text(text)
    assert cpu_quota(tmp_path) == cores
    assert cpu_quota(tmp_path / "none") == 0.0


def test_flags() -> None:
    """Both makes of x86, and Arm."""
    assert has_bfloat16({"avx512_bf16"})
    assert has_bfloat16({"amx_bf16"})
    assert has_bfloat16({"fp", "bf16"})
    assert not has_bfloat16({"avx2", "avx512f"})


def test_this_machine() -> None:
    """Threads never exceed the cores that this process may run on."""
    found = detect()
    assert 1 <= found.threads <= len(found.cores)
    assert found.free_bytes > 0
