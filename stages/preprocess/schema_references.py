"""Do the references within a JSON Schema lead somewhere? Each is followed once, however long a chain they make."""

from typing import Any, cast

from schemas.faults import RequestFault

Schema = dict[str, Any]

MAX_INDEX_DIGITS = 6

_SILENT = {"$defs", "definitions", "$schema", "$id", "$comment", "title", "description", "default", "examples"}
"""What a schema may have that allows and forbids nothing."""


def check_references(parts: list[tuple[str, Schema]]) -> None:
    """A reference has to lead, by way of others or not, to a schema that says something, and that was checked.

    `parts` are all schemas within the schema with their paths, itself first. Raises `RequestFault`.
    """
    checked = {id(part) for _, part in parts}
    referring = [(f"{where}.$ref", part) for where, part in parts if "$ref" in part]
    targets = {id(part): _target(parts[0][1], part["$ref"], checked, where) for where, part in referring}
    passing_on = {id(part) for _, part in referring if set(part) - _SILENT == {"$ref"}}
    sound: set[int] = set()
    for where, part in referring:
        way: set[int] = set()
        here = id(part)
        while here in passing_on and here not in sound:
            if here in way:
                raise RequestFault("invalid_request", "leads nowhere but to itself", where)
            way.add(here)
            here = id(targets[here])
        sound |= way


def _target(root: Schema, reference: str, checked: set[int], path: str) -> Schema | bool:
    """Where a reference leads to directly. Raises `RequestFault`."""
    if reference != "#" and not reference.startswith("#/"):
        raise RequestFault("unsupported", "only references within the schema (#/…) are served", path)
    found = found_at(root, reference)
    if not isinstance(found, bool) and id(found) not in checked:
        raise RequestFault("invalid_request", f"there is no schema at {reference[:64]!r}", path)
    return found


def found_at(root: Schema, reference: str) -> Any:
    """What a JSON pointer behind `#` leads to, None where there is nothing."""
    found: Any = root
    for escaped in reference.split("/")[1:]:
        step = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = cast("Schema", found).get(step)
        elif isinstance(found, list):
            found = _item(cast("list[Any]", found), step)
        else:
            return None
    return found


def _item(items: list[Any], step: str) -> Any:
    if not (step.isascii() and step.isdecimal() and len(step) <= MAX_INDEX_DIGITS):
        return None
    return items[int(step)] if int(step) < len(items) else None
