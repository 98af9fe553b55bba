"""Has every keyword of a JSON Schema a value of its kind? One schema at a time, without those within it.

What the meta-schema says, checked by hand: its interpreter takes a sixth of a millisecond for each schema within a
schema, and holds everybody else up for that long. Keywords that no version knows may have any value.
"""

from collections.abc import Callable
from typing import Any, cast

from schemas.faults import RequestFault

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def check_kinds(schema: dict[str, Any], path: str) -> None:
    """Raises `RequestFault` with the path of the first keyword whose value is of another kind."""
    for name, value in schema.items():
        known = _KINDS.get(name)
        if known is not None and not known[1](value):
            raise RequestFault("invalid_request", f"is no JSON Schema: must be {known[0]}", f"{path}.{name}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    """JSON Schema calls 1.0 a whole number."""
    return _is_number(value) and value >= 0 and value == int(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _are_flags(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(flag, bool) for flag in cast("dict[str, Any]", value).values())


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(cast("list[Any]", value))


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _is_schema_or_list(value: Any) -> bool:
    return _is_schema(value) or _is_filled_list(value)


def _are_names(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    names = cast("list[Any]", value)
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _is_type(value: Any) -> bool:
    if isinstance(value, list):
        return _is_filled_list(value) and _are_names(value) and all(name in TYPES for name in cast("list[str]", value))
    return isinstance(value, str) and value in TYPES


_BY_KIND: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("text", _is_text, "$schema $id $ref $anchor $comment title description format pattern"),
    ("text", _is_text, "contentEncoding contentMediaType"),
    ("true or false", _is_flag, "uniqueItems deprecated readOnly writeOnly"),
    ("a number", _is_number, "minimum maximum exclusiveMinimum exclusiveMaximum"),
    ("a number above 0", _is_positive, "multipleOf"),
    ("a whole number, 0 or more", _is_count, "minLength maxLength minItems maxItems minProperties maxProperties"),
    ("an object", _is_object, "properties patternProperties $defs definitions"),
    ("an object of true and false", _are_flags, "$vocabulary"),
    ("a list", _is_list, "enum examples"),
    ("a list of schemas, not empty", _is_filled_list, "prefixItems allOf anyOf oneOf"),
    ("a list of different texts", _are_names, "required"),
    ("a schema", _is_schema, "additionalProperties unevaluatedProperties propertyNames unevaluatedItems contentSchema"),
    ("a schema, or a list of some", _is_schema_or_list, "items"),
    (f"one of {', '.join(TYPES)}, or a list of different ones", _is_type, "type"),
)

_KINDS = {name: (words, holds) for words, holds, names in _BY_KIND for name in names.split()}
