"""`headrace autoscale`: what was typed, and the process that follows from it."""

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from stages.autoscaling.chosen import rules_of
from stages.autoscaling.process import NAME, Task, live
from stages.autoscaling.ranges import Range, read_options
from stages.autoscaling.settings import AutoscaleSettings
from stages.autoscaling.targets.compose import ComposeTarget
from stages.autoscaling.targets.target import Target
from stages.autoscaling.targets.up import UpTarget
from stages.commands.broker_address import url_as_typed, where
from stages.commands.run_folder import find_control
from stages.process.logs import configure_logging
from stages.sections import StageSettings, load_process_settings, log_settings
from stages.settings import Problem, SettingsError, variable

log = structlog.get_logger()

WRONG = 2
ONCE_PATIENCE_S = 3.0


@dataclass(frozen=True)
class AutoscaleOptions:
    """`headrace autoscale` as typed. `overrides` are `field` or `section.field` → text."""

    stages: Sequence[str] = ()
    compose: Sequence[Path] = ()
    project: str = ""
    dry_run: bool = False
    once: bool = False
    nats_url: str = ""
    every: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])


def run_autoscale(options: AutoscaleOptions, environ: Mapping[str, str] | None = None) -> int:
    """Runs until it is stopped; the exit status: 0 after a stop or `--once`, 2 for wrong settings, else 1."""
    environ = os.environ if environ is None else environ
    try:
        settings = load_process_settings(AutoscaleSettings, _overrides(options, environ), environ)
        ranges = ranges_of(options.stages, settings.stage)
        _check_files(options)
    except SettingsError as error:
        print(SettingsError(_as_typed(error.problems, options)), file=sys.stderr)
        return WRONG
    configure_logging(NAME, level=_level(options, settings), form=settings.process.log_format)
    log_settings(settings.all(), environ)
    rules = {group: rules_of(group, each, settings.stage) for group, each in ranges.items()}
    if options.once:
        patience_s = min(settings.process.broker_patience_s, ONCE_PATIENCE_S)
        settings = replace(settings, process=replace(settings.process, broker_patience_s=patience_s))
    target = _target(options, list(ranges), environ)
    return asyncio.run(live(Task(target, rules, carry_out=not options.dry_run, once=options.once), settings))


def ranges_of(typed: Sequence[str], settings: AutoscaleSettings) -> dict[str, Range]:
    """As typed, else as set. Raises `SettingsError`."""
    name, texts = "--stage", list(typed)
    if not texts:
        name = variable(AutoscaleSettings, "stages")
        texts = [f"{group}={text}" for group, text in settings.stages.items()]
    if not texts:
        raise SettingsError([Problem("--stage", "", "name at least one, as --stage inference=0..4")])
    return read_options(texts, name)


def _overrides(options: AutoscaleOptions, environ: Mapping[str, str]) -> dict[str, str]:
    """With the broker: the one named, else the one of the environment, else that of a running pipeline."""
    found = dict(options.overrides)
    if options.every:
        found["every_s"] = options.every.removesuffix("s")
    broker = where(environ, options.nats_url, "observer")
    return {**found, **{f"nats.{name}": value for name, value in broker.items()}}


def _as_typed(problems: Iterable[Problem], options: AutoscaleOptions) -> list[Problem]:
    """Options that stand for settings are named as they were typed."""
    typed = {"--set every_s": "--every"} if options.every else {}
    named = [replace(problem, name=typed.get(problem.name, problem.name)) for problem in problems]
    return url_as_typed(named, "--set nats.url")


def _check_files(options: AutoscaleOptions) -> None:
    """Raises `SettingsError` where Compose could make nothing of them."""
    if not options.compose:
        return
    if said := asyncio.run(ComposeTarget([], options.compose, options.project).wrong_files()):
        raise SettingsError([Problem("--compose", "", said)])


def _target(options: AutoscaleOptions, groups: list[str], environ: Mapping[str, str]) -> Target:
    if options.compose or options.project:
        return ComposeTarget(groups, options.compose, options.project)
    return UpTarget(lambda: find_control(environ))


def _level(options: AutoscaleOptions, settings: StageSettings) -> str:
    """Where a person reads lines, only what went wrong may come between."""
    speaks = options.dry_run or options.once
    return "warning" if speaks and settings.process.log_level == "info" else settings.process.log_level
