"""What may stand inside a request's free-form fields: JSON, not too deep, with text that UTF-8 can hold."""

import math
from collections.abc import Iterator
from typing import Any, cast

from schemas.codec import MAX_STEP
from schemas.faults import RequestFault

MAX_DEPTH = 64

_PLAIN = frozenset((int, bool, type(None)))
"""Always right."""


def check_text(text: str, path: str) -> None:
    """Raises `RequestFault` for a lone surrogate, with its offset in characters."""
    found = _wrong_text(text)
    if found is not None:
        raise RequestFault("invalid_request", found[1], path)


def check_json(value: Any, path: str) -> None:
    """Raises `RequestFault` with the path of what is no JSON: other types, NaN, lone surrogates, too many levels."""
    found = _wrong(value, MAX_DEPTH)
    if found is not None:
        raise RequestFault("invalid_request", found[1], path + found[0])


def _wrong(value: Any, depth: int) -> tuple[str, str] | None:
    """Where it is wrong, from here, and why. Nothing is said of a million right values: that would take seconds."""
    if depth == 0:
        return "", f"more than {MAX_DEPTH} levels deep"
    if isinstance(value, str):
        return _wrong_text(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else ("", "must be a finite number")
    if isinstance(value, dict):
        return _wrong_in_object(cast("dict[Any, Any]", value), depth - 1)
    if isinstance(value, list):
        return _wrong_in_list(cast("list[Any]", value), depth - 1)
    return None if value is None or isinstance(value, int) else ("", f"a {type(value).__name__} is no JSON")


def _wrong_in_object(value: dict[Any, Any], depth: int) -> tuple[str, str] | None:
    for key, item in value.items():
        if not isinstance(key, str):
            return "", f"the key {key!r:.64} must be text"
        if (found := _wrong_text(key)) is not None:
            return found
        if depth == 0 or type(item) not in _PLAIN:
            found = _wrong(item, depth)
            if found is not None:
                return f".{key[:MAX_STEP]}{found[0]}", found[1]
    return None


def _wrong_in_list(value: list[Any], depth: int) -> tuple[str, str] | None:
    for index, item in enumerate(value):
        if depth == 0 or type(item) not in _PLAIN:
            found = _wrong(item, depth)
            if found is not None:
                return f"[{index}]{found[0]}", found[1]
    return None


def _wrong_text(text: str) -> tuple[str, str] | None:
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return "", f"no valid Unicode: a lone surrogate at character {error.start}"
    return None


def strings_in(value: Any) -> Iterator[str]:
    """Every string in `value` (JSON), keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield key
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from strings_in(item)
