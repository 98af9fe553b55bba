"""Which arguments of tools are texts, for models whose calls do not say."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

Json = Mapping[str, Any]


def text_arguments(tools: Iterable[Json]) -> list[str]:
    """Those of the tools' arguments that take texts and nothing else, as `tool argument`."""
    found: list[str] = []
    for tool in tools:
        function = _mapping(tool.get("function"))
        properties = _mapping(_mapping(function.get("parameters")).get("properties"))
        found += [f"{function.get('name')} {name}" for name, schema in properties.items() if _is_text(schema)]
    return found


def _is_text(schema: Any) -> bool:
    """Null beside a text counts for nothing: between tags it could not be told from the word."""
    found = _mapping(schema)
    for alternatives in (found.get("anyOf"), found.get("oneOf")):
        if isinstance(alternatives, list) and alternatives:
            others = [one for one in cast("list[Any]", alternatives) if _mapping(one).get("type") != "null"]
            return bool(others) and all(_is_text(one) for one in others)
    kind, values = found.get("type"), found.get("enum")
    if kind is None and isinstance(values, list) and values:
        return all(isinstance(value, str) for value in cast("list[Any]", values))
    kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
    return "string" in kinds and all(one in ("string", "null") for one in kinds)


def _mapping(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
