"""Arguments of tool calls, as models write them."""

from typing import Any

import pytest

from schemas.tool_arguments import parsed_arguments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        (r' {"a": "x\ny\\u", "b": [1, null]}', {"a": "x\ny\\u", "b": [1, None]}),
        (r'{"a": "\ud83d\ude00\uD83D\uDE00\u00e9"}', {"a": "😀😀é"}),
        (
            r'{"a": "\ud800", "\udfff": "\ud83dx\ud83d\ud83d\ude00\ude00"}',
            {"a": "\ufffd", "\ufffd": "\ufffdx\ufffd😀\ufffd"},
        ),
        (r'{"a": "\\ud800\\\ud800"}', {"a": "\\ud800\\\ufffd"}),
    ],
)
def test_an_object(text: str, expected: dict[str, Any]) -> None:
    r"""B11: a pair of escapes is one character, half of one is U+FFFD; `\\ud800` is a backslash and five letters."""
    assert parsed_arguments(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "{bad", '{"a": "x', "[1]", "3", '"{}"', '{"a": NaN}', r'{"a": "\ud8"}', r'{"a": "\ud8zz"}', "[" * 100_000],
)
def test_what_is_no_object(text: str) -> None:
    """B10: it raises, and nothing else than what it says."""
    with pytest.raises(ValueError, match=r"is no JSON|must be a JSON object"):
        parsed_arguments(text)
