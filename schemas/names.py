"""What may stand in a subject, as types: a reader refuses a message whose names could not be used, and says which.

Without this one wrong name would make every lookup and publish that is built from it fail, for ever.
"""

import re
from typing import Annotated

import msgspec

ID_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
"""Ids, tenants, sessions and model slugs: subjects and wildcards are made of dots and stars."""

_ID = re.compile(ID_PATTERN)
_KEY = re.compile(r"^[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}$")

Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
"""One token of a subject."""

OptionalId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{0,64}\Z")]
"""One token of a subject, or nothing."""

Key = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]{1,64}\Z")]
"""The name of a request everywhere: `<tenant>.<request id>`."""

ReplySubject = Annotated[str, msgspec.Meta(pattern=r"^([!-)+-=?-~]{1,512})?\Z")]
"""Where an answer or an acknowledgement goes: printable ASCII without wildcards, or nothing."""

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A sequence, an index or a number of things."""


def is_id(text: str) -> bool:
    """Whether `text` can stand as one token of a subject."""
    return _ID.fullmatch(text) is not None


def is_key(text: str) -> bool:
    """Whether `text` is `<tenant>.<request id>`."""
    return _KEY.fullmatch(text) is not None
