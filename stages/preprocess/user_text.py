"""Text that users typed, kept apart from the text of a template while that renders.

A control token has its effect by its text: `<|im_end|>` in a prompt is one id. So that only a template can write one,
one character of every control token (its mark, mostly `<` or `[`) is hidden in all text of users while the template
renders: it stands as a character that the request does not use. Whatever the template makes of the text, no control
token in the result can hold a user's mark. Templates that look into the text (`'</think>' in content`) still see it as
it was typed: `UserText` compares, searches and splits by the plain text.
"""

import json
import secrets
from collections.abc import Iterable
from typing import Any, SupportsIndex, cast

from schemas.faults import RequestFault

_HIDING_FIRST, _HIDING_LAST = 0xF0000, 0xFFFFD
"""Private use; one character for each mark, that the request itself does not hold (aliases use the plane above)."""

_TRIES = 1000


class Masks:
    """Which character hides which mark, for one request. Both have length one, so that offsets stay as they are."""

    __slots__ = ("_escapes", "_hidden")

    def __init__(self, hidden: dict[str, str]) -> None:
        self._hidden = hidden
        self._escapes = {_escaped(mask): _escaped(mark) for mark, mask in hidden.items()}

    @classmethod
    def avoiding(cls, marks: Iterable[str], text: str) -> "Masks":
        """Masks whose characters do not stand in `text`. Raises `RequestFault` where there seem to be none."""
        hidden: dict[str, str] = {}
        used: set[str] = set()
        for mark in marks:
            hidden[mark] = _unused(text, used)
            used.add(hidden[mark])
        return cls(hidden)

    def hide(self, text: str) -> str:
        """`text` with every mark hidden, of the same length."""
        for mark, mask in self._hidden.items():
            text = text.replace(mark, mask)
        return text

    def show(self, text: str) -> str:
        """`text` as it was typed, also where a template wrote it as JSON with ASCII escapes."""
        for mark, mask in self._hidden.items():
            text = str.replace(text, mask, mark)  # a `UserText` has a method of its own
        if "\\u" in text:
            for mask, mark in self._escapes.items():
                text = text.replace(mask, mark)
        return text

    def wrap(self, value: Any) -> Any:
        """A copy of `value` (JSON) in which every string with a mark, keys too, is a `UserText`."""
        if isinstance(value, str):
            hidden = self.hide(value)
            return value if hidden == value else UserText(hidden, self)
        if isinstance(value, dict):
            return {self.wrap(key): self.wrap(item) for key, item in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self.wrap(item) for item in cast("list[Any]", value)]
        return value


class UserText(str):
    """Hidden text that answers questions about itself as the plain text would. Characters and offsets are the same.

    An operation that is not defined here gives the hidden text as a plain `str`: that costs a template its view into
    the text, never the protection.
    """

    __slots__ = ("_masks", "_plain")

    _masks: Masks
    _plain: str | None

    def __new__(cls, hidden: str, masks: Masks) -> "UserText":
        text = super().__new__(cls, hidden)
        text._masks = masks
        text._plain = None
        return text

    @property
    def plain(self) -> str:
        """The text as it was typed."""
        if self._plain is None:
            shown = self._masks.show(self)
            # Where a template wrote JSON with ASCII escapes the offsets would lie.
            self._plain = shown if len(shown) == len(self) else str.__getitem__(self, slice(None))
        return self._plain

    def like(self, hidden: str) -> "UserText":
        """`hidden` as text of the same request."""
        return UserText(hidden, self._masks)

    def _cut(self, start: int, length: int) -> "UserText":
        return self.like(str.__getitem__(self, slice(start, start + length)))

    def __str__(self) -> str:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "UserText":
        return self

    def __hash__(self) -> int:
        return hash(self.plain)

    def __eq__(self, other: object) -> bool:
        return self.plain == _plain(other)

    def __ne__(self, other: object) -> bool:
        return self.plain != _plain(other)

    def __contains__(self, key: str) -> bool:
        return _plain(key) in self.plain

    def __getitem__(self, key: SupportsIndex | slice) -> "UserText":
        return self.like(str.__getitem__(self, key))

    def __add__(self, value: str) -> "UserText":
        return self.like(str.__add__(self, value))

    def __radd__(self, value: str) -> "UserText":
        return self.like(str.__add__(value, self))

    def startswith(self, *arguments: Any) -> bool:
        return self.plain.startswith(*_all_plain(arguments))

    def endswith(self, *arguments: Any) -> bool:
        return self.plain.endswith(*_all_plain(arguments))

    def find(self, *arguments: Any) -> int:
        return self.plain.find(*_all_plain(arguments))

    def rfind(self, *arguments: Any) -> int:
        return self.plain.rfind(*_all_plain(arguments))

    def index(self, *arguments: Any) -> int:
        return self.plain.index(*_all_plain(arguments))

    def count(self, *arguments: Any) -> int:
        return self.plain.count(*_all_plain(arguments))

    def isspace(self) -> bool:
        return self.plain.isspace()

    def lower(self) -> "UserText":
        return self.like(str.lower(self))

    def upper(self) -> "UserText":
        return self.like(str.upper(self))

    def strip(self, chars: str | None = None, /) -> "UserText":
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> "UserText":
        rest = len(self.plain.lstrip(_plain_or_none(chars)))
        return self._cut(len(self) - rest, rest)

    def rstrip(self, chars: str | None = None, /) -> "UserText":
        return self._cut(0, len(self.plain.rstrip(_plain_or_none(chars))))

    def removeprefix(self, prefix: str, /) -> "UserText":
        rest = len(self.plain.removeprefix(_plain(prefix)))
        return self._cut(len(self) - rest, rest)

    def removesuffix(self, suffix: str, /) -> "UserText":
        return self._cut(0, len(self.plain.removesuffix(_plain(suffix))))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list["UserText"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._pieces(self.plain.split(_plain_or_none(sep), maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list["UserText"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._pieces(self.plain.rsplit(_plain_or_none(sep), maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list["UserText"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return [self.like(line) for line in str.splitlines(self, keepends)]

    def partition(self, sep: str, /) -> tuple["UserText", "UserText", "UserText"]:
        before, found, after = (len(piece) for piece in self.plain.partition(_plain(sep)))
        return self._cut(0, before), self._cut(before, found), self._cut(before + found, after)

    def rpartition(self, sep: str, /) -> tuple["UserText", "UserText", "UserText"]:
        before, found, after = (len(piece) for piece in self.plain.rpartition(_plain(sep)))
        return self._cut(0, before), self._cut(before, found), self._cut(before + found, after)

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> "UserText":
        if not old:
            return self.like(str.replace(self, old, new, count))
        return self.like(str(new).join(self.split(old, count)))

    def _pieces(self, plain: list[str], sep: str | None) -> list["UserText"]:
        """The pieces of this text that have the plain texts `plain`, in order, with `sep` between them."""
        pieces: list[UserText] = []
        at = 0
        for piece in plain:
            at = self.plain.index(piece, at)
            pieces.append(self._cut(at, len(piece)))
            at += len(piece) + len(sep or "")
        return pieces


def _plain(text: Any) -> Any:
    return text.plain if isinstance(text, UserText) else text


def _all_plain(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        _all_plain(cast("tuple[Any, ...]", each)) if isinstance(each, tuple) else _plain(each) for each in arguments
    )


def _plain_or_none(sep: str | None) -> str | None:
    return cast("str | None", _plain(sep))


def _unused(text: str, used: set[str]) -> str:
    for _ in range(_TRIES):
        mask = chr(_HIDING_FIRST + secrets.randbelow(_HIDING_LAST - _HIDING_FIRST + 1))
        if mask in used or mask in text or _escaped(mask) in text:
            continue
        return mask
    raise RequestFault("invalid_request", "the text uses nearly every private-use character", "messages")


def _escaped(text: str) -> str:
    """`text` as it stands inside a JSON string with ASCII escapes."""
    return json.dumps(text)[1:-1]
