"""What the image of the CPU stages is."""

import json
import subprocess

import pytest

from tests.compose.docker import docker

pytestmark = pytest.mark.timeout(1500)

LARGEST = 500_000_000
HARDENED = ("--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--network", "none")


def test_it_is_small(cpu_stage: str) -> None:
    """Below 500 MB, whatever base image it stands on."""
    assert int(docker("image", "inspect", cpu_stage, "--format", "{{.Size}}")) < LARGEST


def test_there_is_no_torch(cpu_stage: str) -> None:
    """Nor vLLM."""
    code = "from importlib.util import find_spec; print([name for name in ('torch', 'vllm') if find_spec(name)])"
    assert docker("run", *HARDENED, "--entrypoint", "python", cpu_stage, "-c", code).strip() == "[]"


@pytest.mark.parametrize("program", ["gcc", "cc", "make", "curl", "git"])
def test_there_is_nothing_to_build_or_fetch_with(cpu_stage: str, program: str) -> None:
    """Who gets in finds no tools."""
    found = subprocess.run(
        ["docker", "run", *HARDENED, "--entrypoint", program, cpu_stage], check=False, capture_output=True
    )
    assert found.returncode == 127


def test_it_runs_as_nobody_in_particular(cpu_stage: str) -> None:
    """The user has a number, so that Kubernetes can check that it is not root."""
    assert docker("image", "inspect", cpu_stage, "--format", "{{.Config.User}}").strip() == "10001:10001"
    code = "import os; print(os.getuid(), os.getgid(), os.access('/headrace', os.W_OK))"
    assert docker("run", *HARDENED, "--entrypoint", "python", cpu_stage, "-c", code).split() == [
        "10001",
        "10001",
        "False",
    ]


def test_it_is_headrace(cpu_stage: str) -> None:
    """What follows the image's name are arguments of `headrace`, without a shell between; SIGTERM stops it."""
    assert docker("run", *HARDENED, cpu_stage, "--version").startswith("headrace ")
    config = json.loads(docker("image", "inspect", cpu_stage, "--format", "{{json .Config}}"))
    assert (config["Entrypoint"], config["StopSignal"]) == (["headrace"], "SIGTERM")


def test_every_stage_loads(cpu_stage: str) -> None:
    """Nothing that was left out to make it small is missed."""
    stages = ("edge", "preprocess", "schedule", "postprocess", "inference")
    code = f"import importlib; [importlib.import_module(f'stages.{{stage}}.stage') for stage in {stages}]"
    docker("run", *HARDENED, "--entrypoint", "python", cpu_stage, "-c", code)
