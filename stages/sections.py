"""Which settings exist: a section for each stage, and those that all processes share. Imports nothing else."""

import importlib
import importlib.util
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import structlog

from stages.autoscaling.settings import AutoscaleSettings
from stages.process_settings import BrokerSettings, HealthSettings, ProcessSettings
from stages.settings import Problem, SettingsError, load_settings, section_of, shown, unknown_variables
from stages.topology_settings import TopologyLimits

log = structlog.get_logger()

STAGES = ("edge", "preprocess", "schedule", "inference", "postprocess")
"""In the order of a request's way, which is also the order in which they stop."""

PROCESS = "process"
"""What the section without a name is called in logs and `--set`."""

SHARED: tuple[type[Any], ...] = (ProcessSettings, BrokerSettings, HealthSettings)


@dataclass(frozen=True)
class StageSettings:
    """Everything that one stage's process is told."""

    process: ProcessSettings
    broker: BrokerSettings
    health: HealthSettings
    stage: Any

    def all(self) -> tuple[Any, ...]:
        return (self.process, self.broker, self.health, self.stage)


def present_stages() -> list[str]:
    """The stages that this installation has."""
    return [name for name in STAGES if importlib.util.find_spec(f"stages.{name}.settings") is not None]


def stage_settings(stage: str) -> type[Any]:
    """The settings class of one stage. Raises `LookupError` where `stages/<stage>/settings.py` holds none."""
    module = importlib.import_module(f"stages.{stage}.settings")
    for _, found in inspect.getmembers(module, inspect.isclass):
        if found.__module__ == module.__name__ and section_of(found) == stage:
            return found
    raise LookupError(f"stages/{stage}/settings.py holds no class with SECTION = {stage!r}")


def all_sections() -> list[type[Any]]:
    """Every settings class, the shared ones first."""
    return [*SHARED, TopologyLimits, *(stage_settings(stage) for stage in present_stages()), AutoscaleSettings]


def load_stage_settings(stage: str, overrides: Mapping[str, str], environ: Mapping[str, str]) -> StageSettings:
    """All sections of one stage's process. Raises one `SettingsError` for all that is wrong in any of them."""
    return load_process_settings(stage_settings(stage), overrides, environ)


def load_process_settings(own: type[Any], overrides: Mapping[str, str], environ: Mapping[str, str]) -> StageSettings:
    """Likewise, of a process that has a section of its own."""
    problems: list[Problem] = []
    loaded: list[Any] = []
    named = split_overrides(overrides, section_of(own))
    for cls in (ProcessSettings, BrokerSettings, HealthSettings, own):
        try:
            loaded.append(load_settings(cls, environ, named.pop(section_of(cls) or PROCESS, {})))
        except SettingsError as error:
            problems += error.problems if cls is own else in_section(cls, error.problems)
    for section, fields in named.items():
        problems += SettingsError.unknown_section(section, fields).problems
    if problems:
        raise SettingsError(problems)
    return StageSettings(*loaded)


def in_section(cls: type[Any], problems: Iterable[Problem]) -> list[Problem]:
    """`--set port` of another section than the stage's own was written `--set health.port`."""
    start, section = "--set ", section_of(cls) or PROCESS
    return [
        replace(problem, name=f"{start}{section}.{problem.name.removeprefix(start)}")
        if problem.name.startswith(start)
        else problem
        for problem in problems
    ]


def split_overrides(overrides: Mapping[str, str], default_section: str) -> dict[str, dict[str, str]]:
    """`field` and `section.field` → text, sorted by section."""
    found: dict[str, dict[str, str]] = {}
    for name, text in overrides.items():
        section, dot, field = name.rpartition(".")
        found.setdefault(section if dot else default_section, {})[field] = text
    return found


def log_settings(settings: Iterable[Any], environ: Mapping[str, str]) -> None:
    """What this process was told, without the secrets, and what looks like a typing mistake.

    One line (event `settings`) of those that differ from their defaults; all of them at level debug.
    """
    changed: dict[str, Any] = {}
    for loaded in settings:
        cls = cast("type[Any]", type(loaded))
        section, values, defaults = section_of(cls) or PROCESS, shown(loaded), shown(cls())
        log.debug("settings.all", section=section, **values)
        changed |= {f"{section}.{name}": value for name, value in values.items() if value != defaults[name]}
        for hint in unknown_variables(cls, environ):
            log.warning("settings.unknown", hint=hint)
    if changed:
        log.info("settings", **changed)
