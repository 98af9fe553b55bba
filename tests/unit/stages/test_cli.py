"""The command line as typed: usage errors, exit status, and how light it is."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from stages.sections import present_stages

ROOT = Path(__file__).parents[3]


def headrace(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs it in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "stages.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", **environ},
    )


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["stage", "nothing"], "there is no stage nothing"),
        (["stage", "schedule", "--set", "window"], "write name=value"),
        (["stage", "schedule", "--set", "window=x"], "a whole number from 1 to 8192"),
        (["up", "--replicas", "schedule=many"], "must be a whole number"),
        (["up", "--replicas", "scheduler=2"], "no such stage"),
        (["up", "--engine", "magic"], "--engine='magic': must be one of vllm, simulated"),
        (["up", "--set", "topology.partitions=0"], "from 1 to 256"),
        (["up", "--demo", "--replicas", "inference=0"], "--replicas inference=0: must be at least 1"),
        (["up", "--autoscale", "edge=1..2"], "--autoscale: 'edge=1..2': the autoscaler changes preprocess"),
        (["up", "--autoscale", "inference:a=1..2"], "--autoscale=inference:a: there is none here, but"),
        (["up", "--autoscale", "inference=1", "--set", "autoscale.every_s=x"], "--set autoscale.every_s"),
        (["up", "--engine", "simulated", "--secrets", "/dev/null"], "/dev/null is no folder"),
        (["scale", "inference=many"], "must be a whole number"),
        (["autoscale"], "--stage: name at least one"),
        (["autoscale", "--stage", "inference=4..1"], "--stage: 'inference=4..1': LEAST is at most MOST"),
        (["autoscale", "--stage", "inference=1", "--every", "soon"], "--every='soon': must be a number from 1 to 60"),
        (["autoscale", "--stage", "inference=1", "--set", "pace=1"], "--set pace: no such setting"),
        (["autoscale", "--stage", "inference=1", "--compose", "nothing.yml"], "'nothing.yml' does not exist"),
        (["status", "--nats-url", "foo://me:secret@bar"], "--nats-url='foo://***@bar': no NATS server is at foo://"),
        (["up", "--nats-url", "foo://bar"], "--nats-url='foo://bar': no NATS server is at foo://"),
        (["up", "--set", "autoscale.idl_s=1"], "--set autoscale.idl_s: no such setting"),
        (["ask"], "Missing argument"),
        (["attach", "r1", "--from-token", "-1"], "Invalid value for '--from-token'"),
    ],
)
def test_wrong_usage_is_status_two_and_says_what_is_right(arguments: list[str], hint: str) -> None:
    """Nothing is started, nothing but the mistake is printed."""
    done = headrace(*arguments)
    assert done.returncode == 2
    assert hint in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_help_names_the_stages_that_there_are() -> None:
    """What is not there cannot be started, so it is not offered."""
    done = headrace("stage", "--help", COLUMNS="200")
    assert done.returncode == 0
    assert ", ".join(present_stages()) in done.stdout


def test_version() -> None:
    """That of the package that is installed."""
    done = headrace("--version")
    assert (done.returncode, done.stdout) == (0, f"headrace {version('headrace')}\n")


def test_no_pipeline_is_said_in_one_line(tmp_path: Path) -> None:
    """With what to do about it; the status is that of a failure."""
    done = headrace("status", "--nats-url", "nats://127.0.0.1:9", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "no broker at nats://127.0.0.1:9" in line
    assert "headrace up" in line


def test_the_command_line_loads_what_the_command_needs() -> None:
    """A stage's process holds no other stage's libraries, and no client."""
    code = (
        "import sys, json; import stages.cli; "
        "print(json.dumps([n for n in ('nats', 'opentelemetry', 'transformers', 'torch', 'vllm') if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout) == []
