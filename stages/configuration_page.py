"""docs/configuration.md, written from the settings themselves: `python -m stages.settings`."""

import dataclasses
import sys
from pathlib import Path
from typing import Any, cast

from stages.sections import all_sections
from stages.settings import Setting, described, section_of, settings_of, variable

PAGE = Path("docs") / "configuration.md"

HEAD = """# Configuration

Written by `python -m stages.settings`; do not edit.

Every setting is an environment variable. `headrace stage NAME --set field=value` sets one of that stage,
`headrace up --set stage.field=value` one of a stage that it starts. Wrong values are all named at once, and the
process ends with status 2. A process logs at its start the settings that differ from their defaults (event `settings`;
all of them at level debug, `settings.all`), without the secrets.

Lists are `a,b`, maps `a=1,b=2`; both may be JSON instead. Whether traces and metrics are exported by OTLP is decided
by the standard variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT`, …).
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(cls) for cls in all_sections())])


def main() -> None:
    """Writes the page, below the folder given or the current one."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ".") / PAGE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(), encoding="utf-8")
    print(target)


def _section(cls: type[Any]) -> str:
    title = section_of(cls) or "every process"
    lines = [f"## {title}", "", _first_paragraph(cls), ""]
    lines += ["| variable | default | allowed | meaning |", "|---|---|---|---|"]
    defaults = _defaults(cls)
    for name, (kind, info) in settings_of(cls).items():
        lines.append(_row(variable(cls, name), defaults[name], kind, info))
    return "\n".join([*lines, ""])


def _row(name: str, default: Any, kind: Any, info: Setting) -> str:
    cells = (f"`{name}`", _shown(default), described(kind, info), info.help + (" Secret." if info.secret else ""))
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _defaults(cls: type[Any]) -> dict[str, Any]:
    return {
        field.name: field.default if field.default is not dataclasses.MISSING else _made(field)
        for field in dataclasses.fields(cls)
    }


def _made(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def _shown(default: Any) -> str:
    if default is None or default in ("", [], {}, ()):
        return "—"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, (list, tuple)):
        return f"`{','.join(cast('list[str]', default))}`"
    if isinstance(default, dict):
        pairs = cast("dict[str, str]", default).items()
        return f"`{','.join(f'{name}={value}' for name, value in pairs)}`"
    return f"`{default}`"


def _first_paragraph(cls: type[Any]) -> str:
    return " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())
