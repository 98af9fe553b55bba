"""The values of settings: from text to their type, and what is allowed, in words."""

import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Union, cast

from schemas.names import is_id

TRUE = ("1", "true", "yes", "on")
FALSE = ("0", "false", "no", "off")

Parser = Callable[[str], Any]

# Python's own numbers have digits of every script, and underscores: nobody who types these means a number.
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class WrongValue(ValueError):
    """Text that is no value of a setting; the message says what is allowed."""


class WrongField(ValueError):
    """Fields that do not go together, or one that is wrong in itself: the first of them that somebody set is to blame.

    `shown` is what may be seen of its value, where that is not all.
    """

    def __init__(self, wrong: str, *fields: str, shown: str | None = None) -> None:
        super().__init__(wrong)
        self.fields = fields
        self.shown = shown


def parse(
    kind: Any,
    text: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """The value of type `kind` in `text`. Raises `WrongValue`; `TypeError` for a type that no setting may have."""
    plain, optional = _without_none(kind)
    if optional and text.strip().lower() in ("", "none"):
        return None
    literal = _literals(plain)
    allowed = WrongValue("must be " + allowed_text(kind, minimum=minimum, maximum=maximum, choices=choices))
    try:
        value = _parser(str if literal else plain)(text)
    except ValueError as error:
        raise allowed from error
    permitted = literal or choices
    if permitted and any(str(item) not in permitted for item in _items(value)):
        raise allowed
    if isinstance(value, (int, float)) and not _inside(value, minimum, maximum):
        raise allowed
    return value


def allowed_text(
    kind: Any,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> str:
    """What `kind` and its limits allow, in words: "a whole number from 1 to 64"."""
    plain, optional = _without_none(kind)
    listed = _literals(plain) or choices
    words = f"one of {', '.join(listed)}" if listed else _NAMES[_name_of(plain)]
    if listed and _name_of(plain) in ("tuple", "list"):
        words = f"a list of {', '.join(listed)}"
    if minimum is not None and maximum is not None:
        words += f" from {_plain(minimum)} to {_plain(maximum)}"
    elif minimum is not None:
        words += f", at least {_plain(minimum)}"
    elif maximum is not None:
        words += f", at most {_plain(maximum)}"
    return words + (" or none" if optional else "")


def _plain(number: float) -> str:
    """Without an exponent: it is compared with what someone typed."""
    return str(int(number)) if number == int(number) else f"{number:g}"


def _inside(value: float, minimum: float | None, maximum: float | None) -> bool:
    return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(cast("list[Any]", value)) if isinstance(value, (tuple, list)) else (value,)


def _without_none(kind: Any) -> tuple[Any, bool]:
    """`int | None` → (int, True)."""
    if typing.get_origin(kind) in (Union, types.UnionType):
        others = [part for part in typing.get_args(kind) if part is not type(None)]
        if len(others) == 1 and len(others) < len(typing.get_args(kind)):
            return others[0], True
        raise TypeError(f"no setting may be {kind}")
    return kind, False


def _literals(kind: Any) -> tuple[str, ...] | None:
    if typing.get_origin(kind) is not Literal:
        return None
    return tuple(str(value) for value in typing.get_args(kind))


def _name_of(kind: Any) -> str:
    if kind == dict[str, float]:
        return "weights"
    origin = typing.get_origin(kind) or kind
    name = str(getattr(origin, "__name__", origin))
    return "str" if name == "Literal" else "Path" if name == "PosixPath" else name


def _parser(kind: Any) -> Parser:
    try:
        return _PARSERS[_name_of(kind)]
    except KeyError:
        raise TypeError(f"no setting may be {kind}") from None


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE + FALSE:
        raise ValueError(word)
    return word in TRUE


def _int(text: str) -> int:
    return int(_matching(_WHOLE, text))


def _float(text: str) -> float:
    value = float(_matching(_DECIMAL, text))
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _matching(form: re.Pattern[str], text: str) -> str:
    if not form.fullmatch(text.strip()):
        raise ValueError(text)
    return text.strip()


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _list(text: str) -> list[str]:
    """`a,b`, or a JSON list where an item holds a comma."""
    if text.lstrip().startswith("["):
        items = json.loads(text)
        return [item if isinstance(item, str) else json.dumps(item) for item in items]
    return [item.strip() for item in text.split(",") if item.strip()]


def _map(text: str) -> dict[str, str]:
    """`a=1,b=2`, or a JSON object where a value holds a comma; values stay text."""
    if text.lstrip().startswith("{"):
        pairs = cast("Mapping[str, Any]", json.loads(text)).items()
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in pairs}
    found: dict[str, str] = {}
    for item in _list(text):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise ValueError(item)
        found[name.strip()] = value.strip()
    return found


def _weights(text: str) -> dict[str, float]:
    found = {name: _float(value) for name, value in _map(text).items()}
    if not all(value > 0 and is_id(name) for name, value in found.items()):
        raise ValueError(text)
    return found


def _tuple(text: str) -> tuple[str, ...]:
    return tuple(_list(text))


_PARSERS: dict[str, Parser] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": str,
    "Path": _path,
    "list": _list,
    "tuple": _tuple,
    "dict": _map,
    "weights": _weights,
}

_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "Path": "a path",
    "list": "a list (a,b or JSON)",
    "tuple": "a list (a,b or JSON)",
    "dict": "a map (a=1,b=2 or JSON)",
    "weights": "a map of names (A-Z a-z 0-9 _ -) to numbers above 0 (a=1,b=0.5 or JSON)",
}
