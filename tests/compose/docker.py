"""The Docker engine of this machine and its compose: 2 (`docker compose`) or 1.29 (`docker-compose`)."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD_S = 1200.0


@cache
def lacking() -> str:
    """What is not there to run containers; "" where everything is."""
    if shutil.which("docker") is None:
        return "no Docker here: there is no program `docker`"
    if subprocess.run(["docker", "info"], check=False, capture_output=True, timeout=30).returncode:
        return "no Docker engine here: `docker info` finds none that answers"
    return "" if compose_command() else "no Docker Compose here: neither `docker compose` nor `docker-compose`"


@cache
def compose_command() -> tuple[str, ...]:
    """Nothing where there is none."""
    for command in (("docker", "compose"), ("docker-compose",)):
        if (
            shutil.which(command[0])
            and not subprocess.run([*command, "version"], check=False, capture_output=True).returncode
        ):
            return command
    return ()


def docker(*arguments: str, timeout_s: float = 120.0) -> str:
    """What it prints. Raises `AssertionError` with what it said where it fails."""
    return run(("docker", *arguments), timeout_s=timeout_s)


def run(command: tuple[str, ...], timeout_s: float, environ: dict[str, str] | None = None) -> str:
    """What it prints. Raises `AssertionError` with what it said where it fails."""
    environ = os.environ | (environ or {})
    done = subprocess.run(
        command, cwd=ROOT, env=environ, check=False, capture_output=True, text=True, timeout=timeout_s
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


def build(target: str) -> str:
    """The image of a target of the Dockerfile, under the name that compose files give it."""
    image = f"headrace-{target}"
    docker("build", "--target", target, "--tag", image, ".", timeout_s=BUILD_S)
    return image
