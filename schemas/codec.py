"""The wire form of every message: one msgpack map (JSON too, where a person writes it), its version under `v`.

A message is a frozen `msgspec.Struct` whose tag is its version, so a reader refuses a version that it does not
know before it looks at anything else. A later version reads its predecessor through a union of the two.
Unknown fields are ignored: a newer writer may add some.
"""

import re
import sys
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, cast

import msgspec

Encoding = Literal["msgpack", "json"]

T = TypeVar("T")

CONTENT_TYPES: dict[Encoding, str] = {"msgpack": "application/msgpack", "json": "application/json"}

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
BEYOND_64_BITS = "an integer that 64 bits cannot hold"

MAX_STEP = 64
"""Characters of a name in a path. Where one is made for every value, a long name costs as often as it holds some."""

_PATH = re.compile(r"^(?P<reason>.*?)(?: - at `\$\.?(?P<field>.*)`)?$", re.DOTALL)


class WireError(ValueError):
    """Bytes that are no message of the kind and version that was asked for.

    `field` is the dotted path of the first wrong field (`messages[1].content`), empty when the whole is unreadable.
    """

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.reason = reason
        self.field = field


def encode(message: msgspec.Struct, encoding: Encoding = "msgpack") -> bytes:
    """The bytes of one message. Raises `WireError` for text that UTF-8 cannot hold (a lone surrogate), for numbers that
    64 bits cannot, and for what is nested too deeply."""
    try:
        return msgspec.json.encode(message) if encoding == "json" else msgspec.msgpack.encode(message)
    except UnicodeEncodeError as error:
        text = error.object
        reason = f"no valid Unicode: a lone surrogate at character {error.start}"
        raise WireError(reason, _field_of(lambda value: value == text, message)) from error
    except OverflowError as error:
        raise WireError(BEYOND_64_BITS, _field_of(is_beyond_64_bits, message)) from error
    except RecursionError as error:
        raise WireError(str(error)) from error


def convert(value: Any, kind: type[T]) -> T:
    """The message of type `kind` that a caller's own mappings and lists make. Raises `WireError`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _named(error) from error


def decode(kind: type[T], data: bytes, encoding: Encoding = "msgpack") -> T:
    """The message of type `kind` in `data`. Raises `WireError`, and nothing else, whatever the bytes are."""
    try:
        if encoding == "json":
            return msgspec.json.decode(data, type=kind)
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise _named(error) from error
    except (RecursionError, UnicodeError, OverflowError, ValueError) as error:
        raise WireError(str(error)) from error


def encoding_of(content_type: str, data: bytes = b"") -> Encoding:
    """The encoding that a `Content-Type` header names; where there is none, that of `data`. Raises `WireError`."""
    plain = content_type.partition(";")[0].strip().lower()
    for encoding, name in CONTENT_TYPES.items():
        if plain == name:
            return encoding
    if not plain:
        return sniffed(data)
    raise WireError(f"expected {' or '.join(CONTENT_TYPES.values())}, got {plain!r}", "Content-Type")


def sniffed(data: bytes) -> Encoding:
    """The encoding of a message's bytes: no map of msgpack begins with a brace."""
    return "json" if data.lstrip()[:1] == b"{" else "msgpack"


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as little-endian u32, four bytes each. Raises `OverflowError` for an id that is no u32."""
    packed = array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(data: bytes) -> list[int]:
    """The token ids in `data` (little-endian u32). Raises `WireError` if its length is no multiple of four."""
    if len(data) % 4:
        raise WireError(f"{len(data)} bytes are no whole number of u32 token ids")
    ids = array("I", data)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()


def _named(error: msgspec.MsgspecError) -> WireError:
    found = _PATH.match(str(error))
    return WireError(found["reason"] if found else str(error), (found and found["field"]) or "")


def is_beyond_64_bits(value: Any) -> bool:
    """Whether this is an integer that no message can hold."""
    return isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER


def way_to(wrong: Callable[[Any], bool], value: Any) -> str | None:
    """The way to the first place in `value` (JSON) that is wrong, as a value or as a key: `.tools[0].name`, "" here."""
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        if any(wrong(key) for key in known):
            return ""
        inside = ((key, item) for key, item in known.items())
    elif isinstance(value, list):
        inside = enumerate(cast("list[Any]", value))
    else:
        return "" if wrong(value) else None
    for step, item in inside:
        if (rest := way_to(wrong, item)) is not None:
            return f"[{step}]{rest}" if isinstance(step, int) else f".{step[:MAX_STEP]}{rest}"
    return None


def _field_of(wrong: Callable[[Any], bool], message: msgspec.Struct) -> str:
    """The path of the first wrong place in a message, "" where it cannot be found."""
    try:
        return (way_to(wrong, msgspec.to_builtins(message)) or "").removeprefix(".")
    except RecursionError:
        return ""
