"""The arguments of a tool call as text: what a model wrote, and what clients send back."""

import re
from typing import Any

import msgspec

_HALF = "u[dD][89a-fA-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rf"\\(?:u[dD][89abAB][0-9a-fA-F]{{2}}\\u[dD][c-fC-F][0-9a-fA-F]{{2}}|({_HALF})|.)", re.DOTALL)
"""One escape sequence, of a character's both halves where it takes two; the group is half of one alone."""


def parsed_arguments(text: str) -> dict[str, Any]:
    """The object that `text` is. Raises `ValueError`.

    Half a character, in escapes as models write them, is valid JSON and no text: it becomes U+FFFD.
    """
    try:
        return msgspec.json.decode(_ESCAPE.sub(_whole, text) if r"\u" in text else text, type=dict[str, Any])
    except msgspec.ValidationError:
        raise ValueError("must be a JSON object") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"is no JSON: {error}") from None


def _whole(escape: re.Match[str]) -> str:
    return r"\ufffd" if escape[1] else escape[0]
