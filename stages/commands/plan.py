"""What `headrace up` is asked for, and the processes that follow from it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from schemas.model import slug
from stages.commands.edge_port import EDGE_STAGE
from stages.process.child import ChildSpec
from stages.process_settings import BrokerSettings, HealthSettings
from stages.sections import PROCESS, STAGES, load_stage_settings, present_stages, stage_settings
from stages.settings import PREFIX, Problem, SettingsError, load_settings, settings_of, variable
from stages.topology_settings import TopologyLimits

HEALTH_PORT = f"{PREFIX}_HEALTH_PORT"
ENGINE_STAGE = "inference"
NO_PROCESS = ("topology", "autoscale")
"""Sections for `up` itself."""


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
    autoscale: tuple[str, ...] = ()
    secure: bool = False
    secrets: Path | None = None
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
    problems = _wrong_names(options) + _wrong_broker(options, environ)
    each = _one_of_each(options, environ, problems)
    specs: list[ChildSpec] = []
    for stage in present_stages():
        specs += _of_stage([spec for spec in each if spec.stage == stage], options.replicas.get(stage, 1))
    numbered = _with_own_ports(specs, environ)
    # Processes that may be started later have to be right now; an edge has to be there from the start.
    later = [spec for spec in each if spec.stage != EDGE_STAGE]
    for spec in {spec.stage: spec for spec in [*later, *numbered]}.values():
        problems += _wrong_settings(spec, environ)
    if problems:
        raise SettingsError(_once_each(as_typed(problems, options)))
    return numbered


def patterns(options: UpOptions, environ: Mapping[str, str], specs: Iterable[ChildSpec]) -> dict[str, ChildSpec]:
    """By group: what one more of its processes is like. `specs` are those that run, with what they were told since.

    An edge can be added only to others: they share a port that is found at the start.
    """
    found = {spec.group: spec for spec in _one_of_each(options, environ, []) if spec.stage != EDGE_STAGE}
    found |= {spec.group: spec for spec in specs}
    return dict(sorted(found.items(), key=lambda item: STAGES.index(item[1].stage)))


def first_health_port(environ: Mapping[str, str]) -> int:
    """That of the first process, 0 where none has one."""
    try:
        return load_settings(HealthSettings, environ).port
    except SettingsError:  # each process says what is wrong
        return 0


def _one_of_each(options: UpOptions, environ: Mapping[str, str], problems: list[Problem]) -> list[ChildSpec]:
    """Of every stage, and of inference for every model."""
    shared = _override_variables(options, problems)
    specs = [ChildSpec(stage, 0, shared) for stage in present_stages() if stage != ENGINE_STAGE]
    for model in options.models or ("",):
        engine = {**shared, **_engine_variables(options, model)}
        name = _slug(model, {**environ, **engine}) if len(options.models) > 1 else ""
        specs.append(ChildSpec(ENGINE_STAGE, 0, engine, model=name))
    return specs


def _slug(model: str, environ: Mapping[str, str]) -> str:
    """Under which a worker with that environment serves, as far as that can be told without looking at the model."""
    cls = stage_settings(ENGINE_STAGE)
    name = environ.get(variable(cls, "served_name"))
    folder = Path(model).expanduser()
    if not name and environ.get(variable(cls, "engine")) != "simulated" and folder.is_dir():
        name = folder.resolve().name
    return slug(name or model)


def _of_stage(each: list[ChildSpec], replicas: int) -> list[ChildSpec]:
    """So many of each, in turn."""
    return [replace(each[number % len(each)], number=number) for number in range(replicas * len(each))]


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
        if section in NO_PROCESS:
            continue
        if section == PROCESS:
            found[f"{PREFIX}_{field_name.upper()}"] = text
        elif section not in present_stages():
            known = ", ".join([*present_stages(), PROCESS, *NO_PROCESS])
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
    chosen = chosen_of("topology", options)
    if not says_partitions(options, environ):
        readers = options.replicas.get("postprocess", 0)
        chosen["partitions"] = str(max(TopologyLimits.partitions, readers))
    return load_settings(TopologyLimits, environ, chosen)


def chosen_of(section: str, options: UpOptions) -> dict[str, str]:
    """`--set section.field=text` of one of the sections for `up` itself."""
    start = f"{section}."
    return {name.removeprefix(start): text for name, text in options.overrides.items() if name.startswith(start)}


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
    problems = [Problem(f"--replicas {name}", "", f"no such stage, there are {', '.join(present)}") for name in unknown]
    needed = [stage for stage in present if stage != EDGE_STAGE] if options.demo else []
    needs_one = "must be at least 1: the demo asks a question"
    none = [stage for stage in needed if options.replicas.get(stage) == 0]
    return problems + [Problem(f"--replicas {stage}", "0", needs_one) for stage in none]


def _wrong_broker(options: UpOptions, environ: Mapping[str, str]) -> list[Problem]:
    """Of the URL that was typed; that of the variable is read with each process's settings."""
    name = variable(BrokerSettings, "url")
    if options.embedded or options.nats_url == environ.get(name):
        return []
    try:
        load_settings(BrokerSettings, {name: options.nats_url})
    except SettingsError as error:
        return [replace(problem, name="--nats-url") for problem in error.problems]
    return []


def _with_own_ports(specs: list[ChildSpec], environ: Mapping[str, str]) -> list[ChildSpec]:
    """Processes on one machine cannot share a health port: each takes the next one."""
    first = first_health_port(environ)
    if not first:
        return specs
    return [spec.with_more({HEALTH_PORT: str(first + offset)}) for offset, spec in enumerate(specs)]


def _wrong_settings(spec: ChildSpec, environ: Mapping[str, str]) -> list[Problem]:
    try:
        load_stage_settings(spec.stage, {}, {**environ, **spec.environ})
    except SettingsError as error:
        return error.problems
    return []


def _once_each(problems: list[Problem]) -> list[Problem]:
    """The shared settings are wrong in every process: said once."""
    return list(dict.fromkeys(problems))
