"""Settings of the stages: frozen dataclasses, read from `HEADRACE_<SECTION>_<FIELD>` and `--set field=value`.

    @dataclass(frozen=True)
    class PreprocessSettings:
        SECTION: ClassVar[str] = "preprocess"
        threads: int = setting(2, "Threads that template and tokenize.", minimum=1)

`python -m stages.settings` writes docs/configuration.md. Nothing heavy is imported here: a settings module stays light.
"""

import dataclasses
import difflib
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from stages.setting_values import WrongField, WrongValue, allowed_text, parse

PREFIX = "HEADRACE"
METADATA_KEY = "headrace"
_USER_IN_URL = re.compile(r"://[^/@\s,]+@")

S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What stands in a field's metadata: one line of help and what its value may be."""

    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | None = None
    secret: bool = False


@dataclasses.dataclass(frozen=True)
class Problem:
    """One wrong setting: where it was set, what was found there, and what is allowed."""

    name: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}: {self.allowed}" if self.value else f"{self.name}: {self.allowed}"


class SettingsError(ValueError):
    """Every wrong setting at once, one line each."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems

    @classmethod
    def unknown_section(cls, section: str, fields: Iterable[str]) -> "SettingsError":
        """For `--set section.field=…` with a section that this process does not have."""
        return cls([Problem(f"--set {section}.{field}", "", f"no such section here: {section}") for field in fields])


def setting(
    default: Any,
    help: str,  # noqa: A002 — the word of typer, click and argparse
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Iterable[str] | None = None,
    secret: bool = False,
) -> Any:
    """A dataclass field that is a setting. Both limits are inclusive; a secret is never printed."""
    info = Setting(help, minimum, maximum, tuple(choices) if choices is not None else None, secret)
    metadata = {METADATA_KEY: info}
    if isinstance(default, (list, dict, set)):
        copy: Callable[[], Any] = cast("Any", default).copy
        return dataclasses.field(default_factory=copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def load_settings(cls: type[S], environ: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> S:
    """The settings of `cls` from its defaults, then `environ`, then `overrides` (field → text).

    Raises `SettingsError` that names everything wrong at once. An empty variable counts as not set.
    """
    overrides = overrides or {}
    fields = settings_of(cls)
    problems = [_unknown(f"--set {name}", name, fields) for name in overrides if name not in fields]
    values: dict[str, Any] = {}
    for name, (kind, info) in fields.items():
        source, text = _text_of(cls, name, environ, overrides)
        if text is None:
            continue
        try:
            values[name] = parse(kind, text, minimum=info.minimum, maximum=info.maximum, choices=info.choices)
        except WrongValue as error:
            problems.append(Problem(source, "***" if info.secret else repr(text), str(error)))
    if problems:
        raise SettingsError(problems)
    try:
        return cls(**values)
    except SettingsError:
        raise
    except WrongField as error:
        raise SettingsError([_blamed(cls, error, environ, overrides)]) from error
    except ValueError as error:
        raise SettingsError([Problem(section_of(cls) or "settings", "", str(error))]) from error


def settings_of(cls: type[Any]) -> dict[str, tuple[Any, Setting]]:
    """Name → (type, description) of every setting of a settings class.

    Raises `TypeError` for a field that was not made by `setting`.
    """
    hints = typing.get_type_hints(cls)
    found: dict[str, tuple[Any, Setting]] = {}
    for field in dataclasses.fields(cls):
        info = field.metadata.get(METADATA_KEY)
        if not isinstance(info, Setting):
            raise TypeError(f"{cls.__name__}.{field.name} is no setting(…)")
        found[field.name] = (hints[field.name], info)
    return found


def section_of(cls: type[Any]) -> str:
    """The section of a settings class, "" for what every process has."""
    return getattr(cls, "SECTION", "")


def variable(cls: type[Any], name: str) -> str:
    """The environment variable of one field: `HEADRACE_PREPROCESS_THREADS`."""
    section = section_of(cls)
    return "_".join(part.upper() for part in (PREFIX, section, name) if part)


def shown(settings: Any) -> dict[str, Any]:
    """Field → value, fit for a log: secrets and users in URLs are masked."""
    values: dict[str, Any] = {}
    for name, (_, info) in settings_of(cast("type[Any]", type(settings))).items():
        value = getattr(settings, name)
        if info.secret and value:
            value = "***"
        elif isinstance(value, str):
            value = mask_user(value)
        elif isinstance(value, Path):
            value = str(value)
        values[name] = value
    return values


def mask_user(text: str) -> str:
    """`nats://user:password@host` → `nats://***@host`, anywhere in a text."""
    return _USER_IN_URL.sub("://***@", text)


def unknown_variables(cls: type[Any], environ: Mapping[str, str]) -> list[str]:
    """Variables of this section that name no setting: a hint at a typing mistake, with the nearest name.

    No error: Kubernetes puts variables of its own into this form (`HEADRACE_EDGE_SERVICE_HOST`).
    """
    section = section_of(cls)
    if not section:
        return []
    known = [variable(cls, name) for name in settings_of(cls)]
    prefix = f"{PREFIX}_{section.upper()}_"
    hints: list[str] = []
    for name in environ:
        if name.startswith(prefix) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hints.append(f"{name} is no setting" + (f", did you mean {near[0]}?" if near else ""))
    return hints


def described(kind: Any, info: Setting) -> str:
    """What a setting's value may be, in words."""
    return allowed_text(kind, minimum=info.minimum, maximum=info.maximum, choices=info.choices)


def _text_of(
    cls: type[Any], name: str, environ: Mapping[str, str], overrides: Mapping[str, str]
) -> tuple[str, str | None]:
    """Where the value of one field stands, and its text (None where it is not set)."""
    if name in overrides:
        return f"--set {name}", overrides[name]
    source = variable(cls, name)
    return source, environ.get(source) or None


def _blamed(cls: type[Any], error: WrongField, environ: Mapping[str, str], overrides: Mapping[str, str]) -> Problem:
    """Where the first of the fields that was set stands; of what nobody set, its variable."""
    places = [(name, *_text_of(cls, name, environ, overrides)) for name in error.fields]
    name, source, text = next((place for place in places if place[2] is not None), places[0])
    if text is None:
        return Problem(source, "", str(error))
    value = repr(text) if error.shown is None else error.shown
    return Problem(source, "***" if settings_of(cls)[name][1].secret else value, str(error))


def _unknown(source: str, name: str, fields: Mapping[str, Any]) -> Problem:
    near = difflib.get_close_matches(name, fields, n=1)
    listed = f"did you mean {near[0]}?" if near else f"known are {', '.join(fields)}"
    return Problem(source, "", f"no such setting, {listed}")


if __name__ == "__main__":
    from stages.configuration_page import main

    main()
