"""From settings to an engine: options in their own types, faults in words."""

import json
from pathlib import Path

import pytest

from stages.inference import choose_engine
from stages.inference.choose_engine import engine_options, served_model
from stages.inference.engine import EngineMisconfigured
from stages.inference.hardware import Hardware
from stages.inference.settings import InferenceSettings
from stages.inference.simulated import SimulatedEngine
from stages.settings import SettingsError, load_settings


def settings(**values: str) -> InferenceSettings:
    return load_settings(InferenceSettings, {}, values)


def test_options_have_the_types_that_they_look_like() -> None:
    """Numbers, booleans and objects are JSON, everything else is text."""
    found = engine_options(settings(engine_options="tensor_parallel_size=4,enforce_eager=true,dtype=float32"))
    assert found == {"tensor_parallel_size": 4, "enforce_eager": True, "dtype": "float32"}
    nested = json.dumps({"kv_transfer_config": {"kv_role": "kv_both"}})
    assert engine_options(settings(engine_options=nested)) == {"kv_transfer_config": {"kv_role": "kv_both"}}


def test_options_of_a_file(tmp_path: Path) -> None:
    """A file's options, and those given by name over them."""
    file = tmp_path / "options.json"
    file.write_text('{"max_num_seqs": 8, "dtype": "bfloat16"}')
    found = engine_options(settings(engine_options_file=str(file), engine_options="dtype=float32"))
    assert found == {"max_num_seqs": 8, "dtype": "float32"}


@pytest.mark.parametrize("text", [None, "{broken", "[1]"])
def test_a_wrong_file(tmp_path: Path, text: str | None) -> None:
    """A file that is not there or holds no object is a wrong setting: starting again would not help."""
    file = tmp_path / "options.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match="engine_options_file"):
        engine_options(settings(engine_options_file=str(file)))


def test_simulated() -> None:
    """Its speed and size come from the settings, its name can be chosen."""
    model = served_model(settings(engine="simulated", served_name="my/model", slots="3", simulated_step_ms="5"))
    assert isinstance(model.engine, SimulatedEngine)
    assert (model.kind, model.name, model.slug) == ("simulated", "my/model", "my-model")
    assert "tokenizer.json" in model.files
    assert served_model(settings(engine="simulated")).name == "simulated"


@pytest.mark.parametrize(("platform", "words"), [("linux", "make install.*simulated"), ("darwin", "macOS.*simulated")])
def test_without_vllm(monkeypatch: pytest.MonkeyPatch, platform: str, words: str) -> None:
    """Where there is no vLLM, the message says how to get it where that can be had, and names what there is."""
    monkeypatch.setattr(choose_engine, "detect", lambda: Hardware("", [0], 1, 1, bfloat16=False))
    monkeypatch.setattr("sys.platform", platform)
    with pytest.raises(EngineMisconfigured, match=words):
        served_model(settings())
