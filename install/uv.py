"""What uv has to be told: it reads none of pip's configuration, and the CPU build of torch is on no public index."""

from __future__ import annotations

import ast
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def parse_pip_config(listing: str) -> dict[str, list[str]]:
    """Read what `pip config list` prints: option to its values, the environment's before those of files."""
    options: dict[str, list[str]] = {}
    for line in sorted(listing.splitlines(), key=lambda line: not line.startswith(":env:")):
        key, _, value = line.partition("=")
        # 'global.find-links' and ':env:.find-links' are the same option
        options.setdefault(key.rpartition(".")[2], []).extend(str(ast.literal_eval(value)).split())
    return options


def environment(engine: str, environ: Mapping[str, str], pip: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the environment variables for uv: `environ` and what pip is configured to do."""
    env = dict(environ)
    if index := pip.get("index-url"):
        env.setdefault("UV_DEFAULT_INDEX", index[0])
    # Everything needed is on the default index, so an extra one counts only where it was asked for just now.
    if extra := environ.get("PIP_EXTRA_INDEX_URL"):
        env.setdefault("UV_INDEX", extra)
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")  # pip's way: the best of all indexes
    if cert := pip.get("cert"):
        env.setdefault("SSL_CERT_FILE", cert[0])
    if engine == "cpu" and (wheels := _torch_wheels(environ, pip)):
        env["UV_FIND_LINKS"] = str(wheels)
        env.pop("UV_TORCH_BACKEND", None)
    return env


def flags(engine: str, environ: Mapping[str, str], pip: Mapping[str, list[str]]) -> list[str]:
    """Return the options for `uv pip install`."""
    if engine != "cpu":
        return []
    overrides = ["--overrides", str(Path(__file__).with_name("overrides-cpu.txt"))]
    # With a backend uv asks PyTorch's own index even where the wheel lies on disk: one or the other.
    return overrides if _torch_wheels(environ, pip) else [*overrides, "--torch-backend=cpu"]


def _torch_wheels(environ: Mapping[str, str], pip: Mapping[str, list[str]]) -> Path | None:
    """Return the folder that has the CPU build of torch for this Python, if there is one."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    pattern = f"torch-*+cpu-{tag}-{tag}-*{platform.machine()}.whl"
    return next((folder for folder in _link_folders(environ, pip) if any(folder.glob(pattern))), None)


def _link_folders(environ: Mapping[str, str], pip: Mapping[str, list[str]]) -> Iterator[Path]:
    for link in [*environ.get("UV_FIND_LINKS", "").split(","), *pip.get("find-links", [])]:
        folder = Path(link.removeprefix("file://"))
        if link and folder.is_dir():
            yield folder
