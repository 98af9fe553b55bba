"""What may stand inside a request's free-form fields: JSON, not too deep, with text that UTF-8 can hold."""

import math
from collections.abc import Iterator
from typing import Any, cast

from schemas.faults import RequestFault

MAX_DEPTH = 64


def check_text(text: str, path: str) -> None:
    """Raises `RequestFault` for a lone surrogate, with its offset in characters."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestFault(
            "invalid_request", f"no valid Unicode: a lone surrogate at character {error.start}", path
        ) from None


def check_json(value: Any, path: str, depth: int = MAX_DEPTH) -> None:
    """Raises `RequestFault` with the path of what is no JSON: other types, NaN, lone surrogates, too many levels."""
    if depth == 0:
        raise RequestFault("invalid_request", f"more than {MAX_DEPTH} levels deep", path)
    if isinstance(value, str):
        check_text(value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise RequestFault("invalid_request", "must be a finite number", path)
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            if not isinstance(key, str):
                raise RequestFault("invalid_request", f"the key {key!r} must be text", path)
            check_text(key, path)
            check_json(item, f"{path}.{key}", depth - 1)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            check_json(item, f"{path}[{index}]", depth - 1)
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise RequestFault("invalid_request", f"a {type(value).__name__} is no JSON", path)


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
