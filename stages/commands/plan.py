"""What `headrace up` is asked for, and the processes that follow from it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from stages.process.child import ChildSpec
from stages.sections import PROCESS, load_stage_settings, present_stages, stage_settings
from stages.settings import PREFIX, Problem, SettingsError, load_settings, settings_of, variable
from stages.topology_settings import TopologyLimits

HEALTH_PORT = f"{PREFIX}_HEALTH_PORT"
ENGINE_STAGE = "inference"


@dataclass(frozen=True)
class UpOptions:
    """`headrace up` as typed. `overrides`: `section.field` → text; `replicas`: processes per stage (and per model)."""

    store: Path | None = None
    nats_url: str = ""
    models: tuple[str, ...] = ()
    engine: str = ""
    engine_options: Mapping[str, str] = field(default_factory=dict[str, str])
    engine_options_file: Path | None = None
    replicas: Mapping[str, int] = field(default_factory=dict[str, int])
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    logs: Path | None = None
    demo: bool = False
    once: bool = False
    prompt: str = ""

    @property
    def embedded(self) -> bool:
        """Whether a nats-server of our own is started."""
        return not self.nats_url


def plan(options: UpOptions, environ: Mapping[str, str]) -> list[ChildSpec]:
    """The processes to start, in the order of a request's way; `HEADRACE_NATS_URL` is not in them yet.

    Every process's settings are read here already: raises one `SettingsError` for all that is wrong.
    """
    problems = _wrong_names(options)
    shared = _override_variables(options, problems)
    specs: list[ChildSpec] = []
    for stage in present_stages():
        specs += _of_stage(stage, options, shared)
    numbered = _with_own_ports(specs, environ)
    for spec in {spec.stage: spec for spec in numbered}.values():
        problems += _wrong_settings(spec, environ)
    if problems:
        raise SettingsError(_once_each(as_typed(problems, options)))
    return numbered


def _of_stage(stage: str, options: UpOptions, shared: Mapping[str, str]) -> list[ChildSpec]:
    replicas = options.replicas.get(stage, 1)
    if stage != ENGINE_STAGE:
        return [ChildSpec(stage, number, shared) for number in range(replicas)]
    engines = [{**shared, **_engine_variables(options, model)} for model in options.models or ("",)]
    return [ChildSpec(stage, number, engines[number % len(engines)]) for number in range(replicas * len(engines))]


def _engine_variables(options: UpOptions, model: str) -> dict[str, str]:
    """What the options about models and engines mean as settings of the inference stage."""
    values = {
        "model": model,
        "engine": options.engine,
        "engine_options": json.dumps(dict(options.engine_options)) if options.engine_options else "",
        "engine_options_file": str(options.engine_options_file.resolve()) if options.engine_options_file else "",
    }
    cls = stage_settings(ENGINE_STAGE)
    return {variable(cls, name): text for name, text in values.items() if text}


def _override_variables(options: UpOptions, problems: list[Problem]) -> dict[str, str]:
    """`--set section.field=text` as environment variables; what names no stage goes to `problems`."""
    found: dict[str, str] = {}
    for name, text in options.overrides.items():
        section, _, field_name = name.partition(".")
        if section == "topology":
            continue  # for the streams, not for a process
        if section == PROCESS:
            found[f"{PREFIX}_{field_name.upper()}"] = text
        elif section not in present_stages():
            known = ", ".join([*present_stages(), PROCESS, "topology"])
            problems.append(Problem(f"--set {name}", "", f"write stage.field=value; stages are {known}"))
        elif field_name not in settings_of(stage_settings(section)):
            names = ", ".join(settings_of(stage_settings(section)))
            problems.append(Problem(f"--set {name}", "", f"no such setting, {section} has {names}"))
        else:
            found[variable(stage_settings(section), field_name)] = text
    return found


def limits(options: UpOptions, environ: Mapping[str, str]) -> TopologyLimits:
    """Those of the streams. Where nobody says how many partitions, no postprocess stays without one.

    Raises `SettingsError`.
    """
    chosen = {
        name.removeprefix("topology."): text for name, text in options.overrides.items() if name.startswith("topology.")
    }
    if not says_partitions(options, environ):
        readers = options.replicas.get("postprocess", 0)
        chosen["partitions"] = str(max(TopologyLimits.partitions, readers))
    return load_settings(TopologyLimits, environ, chosen)


def says_partitions(options: UpOptions, environ: Mapping[str, str]) -> bool:
    """Whether somebody chose their number: otherwise that of the streams that are there is as good as any."""
    return "topology.partitions" in options.overrides or variable(TopologyLimits, "partitions") in environ


def as_typed(problems: Iterable[Problem], options: UpOptions) -> list[Problem]:
    """What was typed here reaches a process as a variable; the error names what was typed."""
    typed = {
        f"{PREFIX}_{name.removeprefix(f'{PROCESS}.').replace('.', '_').upper()}": f"--set {name}"
        for name in options.overrides
    }
    cls = stage_settings(ENGINE_STAGE)
    given = {"engine": options.engine, "engine_options": options.engine_options, "model": options.models}
    typed |= {variable(cls, name): f"--{name.replace('_', '-')}" for name, value in given.items() if value}
    return [replace(problem, name=typed.get(problem.name, problem.name)) for problem in problems]


def _wrong_names(options: UpOptions) -> list[Problem]:
    present = present_stages()
    unknown = [name for name in options.replicas if name not in present]
    return [Problem(f"--replicas {name}", "", f"no such stage, there are {', '.join(present)}") for name in unknown]


def _with_own_ports(specs: list[ChildSpec], environ: Mapping[str, str]) -> list[ChildSpec]:
    """Processes on one machine cannot share a health port: each takes the next one."""
    first = environ.get(HEALTH_PORT, "")
    if not first.isdigit() or int(first) == 0:
        return specs
    return [spec.with_more({HEALTH_PORT: str(int(first) + offset)}) for offset, spec in enumerate(specs)]


def _wrong_settings(spec: ChildSpec, environ: Mapping[str, str]) -> list[Problem]:
    try:
        load_stage_settings(spec.stage, {}, {**environ, **spec.environ})
    except SettingsError as error:
        return error.problems
    return []


def _once_each(problems: list[Problem]) -> list[Problem]:
    """The shared settings are wrong in every process: said once."""
    return list(dict.fromkeys(problems))
