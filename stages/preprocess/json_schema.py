"""Is this a JSON Schema that a grammar can hold an answer to? What is wrong is said by the field's name.

Bounds keep out what would take an engine's memory, or its time for everybody.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from schemas.faults import RequestFault
from stages.preprocess.json_values import check_json
from stages.preprocess.regex_size import check_regex

MAX_SCHEMA = 128 * 1024
MAX_COUNT = 100_000
"""Of `minLength`, `maxItems` and their like."""

MAX_PATTERNS = 5000
"""All patterns of a schema together, unrolled."""

MAX_NAMES = 1000
MAX_VALUES = 2000
"""Properties and values of `enum` in a schema; a grammar of ten times as many compiles for minutes."""

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")

_NOT_HELD = (
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "minContains",
    "maxContains",
    "additionalItems",
    "$dynamicRef",
    "$recursiveRef",
)
"""No engine's grammar holds these; some would pass over them without a word."""

_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("prefixItems", "allOf", "anyOf", "oneOf")
_SINGLE = ("additionalProperties", "unevaluatedProperties", "propertyNames", "items")

_SILENT = {"$defs", "definitions", "$schema", "$id", "$comment", "title", "description", "default", "examples"}
"""What a schema may have that allows and forbids nothing."""

Schema = dict[str, Any]


def check_schema(schema: object, path: str) -> str:
    """The schema as JSON text. Raises `RequestFault`."""
    check_json(schema, path)
    if not isinstance(schema, dict):
        raise RequestFault("invalid_request", "must be a JSON Schema, an object", path)
    known = cast("Schema", schema)
    text = json.dumps(known, ensure_ascii=False)
    if len(text) > MAX_SCHEMA:
        raise RequestFault("invalid_request", f"{len(text)} characters, at most {MAX_SCHEMA}", path)
    _check_schema(text, path)
    return text


@lru_cache(maxsize=64)
def _check_schema(text: str, path: str) -> None:
    """Milliseconds of Python, for a schema that mostly comes again and again: one that passed is known."""
    known: Schema = json.loads(text)
    parts = list(_parts(known, path))
    _check_against_meta_schema(known, path, lists=_has_listed_items(parts))
    for where, part in parts:
        _check_keywords(part, where)
        if "$ref" in part:
            _check_reference([each for _, each in parts], part["$ref"], f"{where}.$ref")
    _check_sizes(parts, path)


def _has_listed_items(parts: list[tuple[str, Schema]]) -> bool:
    """Whether it has the older form of `prefixItems`. Raises `RequestFault` where it has both."""
    lists = any(isinstance(part.get("items"), list) for _, part in parts)
    both = next((where for where, part in parts if lists and "prefixItems" in part), None)
    if both is not None:
        raise RequestFault("invalid_request", "goes not together with a list of items", f"{both}.prefixItems")
    return lists


def _check_sizes(parts: list[tuple[str, Schema]], path: str) -> None:
    sums = {
        "patterns, unrolled,": (sum(_patterns(part, where) for where, part in parts), MAX_PATTERNS),
        "properties": (sum(len(part.get("properties") or ()) for _, part in parts), MAX_NAMES),
        "enum values": (sum(len(part.get("enum") or ()) for _, part in parts), MAX_VALUES),
    }
    for name, (size, most) in sums.items():
        if size > most:
            raise RequestFault("invalid_request", f"has {size} {name} altogether, at most {most} are served", path)


def _check_against_meta_schema(schema: Schema, path: str, *, lists: bool) -> None:
    """Whatever `$schema` says, engines read all versions alike; `lists`: it has the older form of `items`."""
    from jsonschema import Draft201909Validator, Draft202012Validator, SchemaError

    validator: Any = Draft201909Validator if lists else Draft202012Validator
    try:
        validator.check_schema(schema)
    except SchemaError as error:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
        raise RequestFault("invalid_request", f"is no JSON Schema: {error.message[:200]}", path + place) from None
    except RecursionError:
        raise RequestFault("invalid_request", "is no JSON Schema: it nests too deep", path) from None


def _parts(schema: Any, path: str) -> Iterator[tuple[str, Schema]]:
    """Every schema within the schema, itself first, each with its path."""
    if not isinstance(schema, dict):
        return
    known = cast("Schema", schema)
    yield path, known
    for name in _MAPS:
        found = known.get(name)
        for key, part in cast("Schema", found).items() if isinstance(found, dict) else ():
            yield from _parts(part, f"{path}.{name}.{key}")
    for name in (*_LISTS, *_SINGLE):
        found = known.get(name)
        listed = cast("list[Any]", found) if isinstance(found, list) else None
        if listed is None:
            yield from _parts(found, f"{path}.{name}")
        for index, part in enumerate(listed or ()):
            yield from _parts(part, f"{path}.{name}[{index}]")


def _check_keywords(schema: Schema, path: str) -> None:
    for name in _NOT_HELD:
        if name in schema:
            raise RequestFault("unsupported", "cannot be held by a grammar", f"{path}.{name}")
    if schema.get("uniqueItems"):
        raise RequestFault("unsupported", "cannot be held by a grammar", f"{path}.uniqueItems")
    for name in _COUNTS:
        if schema.get(name, 0) > MAX_COUNT:
            raise RequestFault("invalid_request", f"must be at most {MAX_COUNT}", f"{path}.{name}")
    if schema.get("enum") == []:
        raise RequestFault("invalid_request", "allows nothing", f"{path}.enum")


def _patterns(schema: Schema, path: str) -> int:
    """The size of the patterns of one schema."""
    size = check_regex(schema["pattern"], f"{path}.pattern") if "pattern" in schema else 0
    for pattern in cast("Schema", schema.get("patternProperties") or {}):
        size += check_regex(pattern, f"{path}.patternProperties")
    return size


def _check_reference(parts: list[Schema], reference: Any, path: str) -> None:
    """A reference has to lead, by way of others or not, to a schema that says something, and that was checked.

    `parts` are all schemas within the schema, itself first.
    """
    seen: set[str] = set()
    while True:
        if not (isinstance(reference, str) and re.match(r"^#(/|$)", reference)):
            raise RequestFault("unsupported", "only references within the schema (#/…) are served", path)
        if reference in seen:
            raise RequestFault("invalid_request", "leads nowhere but to itself", path)
        seen.add(reference)
        found = _found(parts[0], reference)
        part = next((part for part in parts if part is found), None)
        if part is None and not isinstance(found, bool):
            raise RequestFault("invalid_request", f"there is no schema at {reference[:64]!r}", path)
        if part is None or set(part) - _SILENT != {"$ref"}:
            return
        reference = part["$ref"]


def _found(root: Schema, reference: str) -> Any:
    """What a reference leads to, None where there is nothing."""
    found: Any = root
    for escaped in reference.split("/")[1:]:
        step = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = cast("Schema", found).get(step)
        elif isinstance(found, list) and step.isdecimal():
            found = next(iter(cast("list[Any]", found)[int(step) :]), None)
        else:
            return None
    return found
