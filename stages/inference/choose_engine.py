"""From settings to an engine and the model's files, whichever engine it is."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import structlog

from schemas.model import slug
from stages.inference.bundled_model import BundledModelMissingError, bundled_model_path
from stages.inference.engine import Engine, EngineMisconfigured
from stages.inference.hardware import Hardware, detect, set_environment
from stages.inference.model_card import checkpoint_files, eos_ids, model_name, weights_dtype
from stages.inference.settings import InferenceSettings
from stages.settings import Problem, SettingsError

log = structlog.get_logger()

SIMULATED_SLOTS = 64


@dataclass(frozen=True)
class ServedModel:
    """An engine that is not started yet, and what its model is called and made of."""

    engine: Engine
    kind: str
    name: str
    files: dict[str, bytes]

    @property
    def slug(self) -> str:
        return slug(self.name)


def served_model(settings: InferenceSettings) -> ServedModel:
    """The engine that the settings ask for; reads the model's small files, from a hub if need be (blocks).

    Raises `EngineMisconfigured`, `EngineUnavailable`, `SettingsError`.
    """
    if settings.engine == "simulated":
        return _simulated(settings)
    return _vllm(settings)


def engine_options(settings: InferenceSettings) -> dict[str, Any]:
    """The user's options of the engine, in their own types: the file's, then those given by name.

    Raises `SettingsError`.
    """
    return _options_file(settings.engine_options_file) | {
        name: _json_or_text(text) for name, text in settings.engine_options.items()
    }


def _simulated(settings: InferenceSettings) -> ServedModel:
    from stages.inference.echo_model import echo_model
    from stages.inference.simulated import SimulatedEngine, SimulatedOptions
    from stages.inference.simulated_model import simulated_model

    options = SimulatedOptions(
        slots=settings.slots or SIMULATED_SLOTS,
        kv_tokens=settings.simulated_kv_tokens,
        context_length=settings.simulated_context,
        step_tokens=settings.simulated_step_tokens,
        step_s=settings.simulated_step_ms / 1e3,
        decode_s=settings.simulated_decode_us / 1e6,
        prefill_s=settings.simulated_prefill_us / 1e6,
        eos_probability=settings.simulated_eos,
        echo=settings.simulated_echo,
        hang=settings.simulated_hang,
        death=settings.simulated_death,
        poison=settings.simulated_poison,
    )
    name = settings.served_name or settings.model or "simulated"
    model = echo_model() if options.echo else simulated_model()
    return ServedModel(SimulatedEngine(options), "simulated", name, model.files())


def _vllm(settings: InferenceSettings) -> ServedModel:
    hardware = detect()
    if not hardware.kind:
        raise EngineMisconfigured(_how_to_get_vllm())
    variables = set_environment(hardware)
    options = engine_options(settings)
    try:
        model = settings.model or str(bundled_model_path())
    except BundledModelMissingError as error:
        raise EngineMisconfigured(str(error)) from error
    files = checkpoint_files(model, settings.revision, trust_remote_code=settings.trust_remote_code)
    name = settings.served_name or model_name(model)
    log.info("inference.hardware", **_words(hardware), **variables)
    return ServedModel(_vllm_engine(settings, model, files, options, hardware), "vllm", name, files)


def _how_to_get_vllm() -> str:
    if sys.platform == "darwin":
        return "vLLM is not installed here (it has no macOS wheel); the engine `simulated` is: --engine simulated"
    return (
        "vLLM is not installed here: `make install` (with ACCELERATOR=gpu for NVIDIA GPUs) does it; "
        "--engine simulated does without"
    )


def _vllm_engine(
    settings: InferenceSettings,
    model: str,
    files: Mapping[str, bytes],
    options: Mapping[str, Any],
    hardware: Hardware,
) -> Engine:
    from stages.inference.step_thread import StepThread
    from stages.inference.vllm_engine import VllmCore, VllmProcess
    from stages.inference.vllm_options import VllmOptions, unknown_options

    if options and (unknown := unknown_options(options)):
        raise SettingsError([Problem("engine_options", name, text) for name, text in unknown.items()])
    own = settings.engine_process == "own" or (settings.engine_process == "auto" and hardware.kind == "gpu")
    wanted = VllmOptions(
        model=model,
        eos_ids=eos_ids(files),
        revision=settings.revision,
        trust_remote_code=settings.trust_remote_code,
        slots=settings.slots,
        structured=settings.structured,
        weights_dtype=weights_dtype(files),
        own_process=own,
        options=options,
    )
    return VllmProcess(wanted, hardware) if own else StepThread(lambda: VllmCore(wanted, hardware))


def _options_file(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        found = json.loads(Path(path).expanduser().read_text())
    except (OSError, ValueError) as error:
        raise SettingsError([Problem("engine_options_file", path, f"must be a JSON file ({error})")]) from error
    if not isinstance(found, dict):
        raise SettingsError([Problem("engine_options_file", path, "must hold a JSON object")])
    return cast("dict[str, Any]", found)


def _json_or_text(text: str) -> Any:
    """`4`, `true` and `{"a": 1}` are what they look like; `float32` is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _words(hardware: Hardware) -> dict[str, Any]:
    return {
        "accelerator": hardware.kind,
        "threads": hardware.threads,
        "free_gib": round(hardware.free_bytes / 1024**3, 1),
        "bfloat16": hardware.bfloat16,
    }
