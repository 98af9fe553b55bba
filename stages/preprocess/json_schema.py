"""Is this a JSON Schema that a grammar can hold an answer to? What is wrong is said by the field's name.

Bounds keep out what would take an engine's memory, or its time for everybody.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from schemas.codec import BEYOND_64_BITS, is_beyond_64_bits, way_to
from schemas.faults import RequestFault
from stages.preprocess.json_values import check_json
from stages.preprocess.regex_size import check_regex
from stages.preprocess.schema_keywords import check_kinds
from stages.preprocess.schema_references import check_references

MAX_SCHEMA = 128 * 1024
MAX_COUNT = 100_000
"""Of `minLength`, `maxItems` and their like."""

MAX_PATTERNS = 5000
"""All patterns of a schema together, unrolled."""

MAX_PATTERN_TEXT = 16 * 1024
"""Characters of all patterns of a schema together: reading them takes a microsecond for each."""

MAX_PARTS = 2000
"""Schemas within a schema, itself among them."""

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
_SINGLE = (
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "unevaluatedItems",
    "contentSchema",
)

Schema = dict[str, Any]


def check_schema(schema: object, path: str) -> str:
    """The schema as JSON text. Raises `RequestFault`."""
    text = schema_text(schema, path)
    _check_values(schema, path)
    _check_schema(text, path)
    return text


def schema_text(schema: object, path: str) -> str:
    """The JSON text of what may be a schema: so far, an object that is not too long. Raises `RequestFault`."""
    if not isinstance(schema, dict):
        raise RequestFault("invalid_request", "must be a JSON Schema, an object", path)
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        _check_values(cast("Schema", schema), path)
        raise
    if len(text) > MAX_SCHEMA:
        raise RequestFault("invalid_request", f"{len(text)} characters, at most {MAX_SCHEMA}", path)
    return text


def check_count(schema: Schema, path: str, most: int) -> None:
    """Raises `RequestFault` where a schema holds more schemas than `most`, before most are looked at."""
    if sum(1 for _ in islice(_within(schema, path), most + 1)) > most:
        raise RequestFault("invalid_request", f"more than {most} schemas within each other", path)


def _check_values(schema: object, path: str) -> None:
    """JSON text may have integers that a schema in a message cannot: refused in both."""
    check_json(schema, path)
    if (way := way_to(is_beyond_64_bits, schema)) is not None:
        raise RequestFault("invalid_request", BEYOND_64_BITS, path + way)


@lru_cache(maxsize=64)
def _check_schema(text: str, path: str) -> None:
    """Milliseconds of Python, for a schema that mostly comes again and again: one that passed is known."""
    parts = _parts(json.loads(text), path)
    _refuse_two_lists(parts)
    for where, part in parts:
        check_kinds(part, where)
        _check_keywords(part, where)
    check_references(parts)
    _check_sizes(parts, path)


def _refuse_two_lists(parts: list[tuple[str, Schema]]) -> None:
    """A list of `items` is the older form of `prefixItems`: engines read a schema by one version alone."""
    lists = any(isinstance(part.get("items"), list) for _, part in parts)
    both = next((where for where, part in parts if lists and "prefixItems" in part), None)
    if both is not None:
        raise RequestFault("invalid_request", "goes not together with a list of items", f"{both}.prefixItems")


def _check_sizes(parts: list[tuple[str, Schema]], path: str) -> None:
    patterns = [found for where, part in parts for found in _patterns(part, where)]
    _check_size("characters of patterns", sum(len(pattern) for pattern, _ in patterns), MAX_PATTERN_TEXT, path)
    unrolled = sum(check_regex(pattern, where) for pattern, where in patterns)
    _check_size("patterns, unrolled,", unrolled, MAX_PATTERNS, path)
    _check_size("properties", sum(len(part.get("properties", ())) for _, part in parts), MAX_NAMES, path)
    _check_size("enum values", sum(len(part.get("enum", ())) for _, part in parts), MAX_VALUES, path)


def _check_size(name: str, size: int, most: int, path: str) -> None:
    if size > most:
        raise RequestFault("invalid_request", f"has {size} {name} altogether, at most {most} are served", path)


def _parts(schema: Schema, path: str) -> list[tuple[str, Schema]]:
    """Every schema within the schema, itself first, each with its path; those that are true or false left out.

    Raises `RequestFault` where there are too many, before most are looked at, or where something else stands.
    """
    check_count(schema, path, MAX_PARTS)
    found = list(_within(schema, path))
    for where, part in found:
        if not isinstance(part, (dict, bool)):
            raise RequestFault("invalid_request", "is no JSON Schema: must be an object, true or false", where)
    return [(where, cast("Schema", part)) for where, part in found if isinstance(part, dict)]


def _within(schema: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What stands where a schema should, itself first. In paths long names are cut: each is said once a part."""
    yield path, schema
    known = cast("Schema", schema) if isinstance(schema, dict) else {}
    for name in _MAPS:
        found = known.get(name)
        for key, part in cast("Schema", found).items() if isinstance(found, dict) else ():
            yield from _within(part, f"{path}.{name}.{key[:64]}")
    for name in (*_LISTS, *_SINGLE):
        found = known.get(name)
        if isinstance(found, list):
            for index, part in enumerate(cast("list[Any]", found)):
                yield from _within(part, f"{path}.{name}[{index}]")
        elif isinstance(found, dict):
            yield from _within(found, f"{path}.{name}")


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


def _patterns(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    """The patterns of one schema, each with its path."""
    if "pattern" in schema:
        yield schema["pattern"], f"{path}.pattern"
    for pattern in schema.get("patternProperties", ()):
        yield pattern, f"{path}.patternProperties"
