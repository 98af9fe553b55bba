"""Which arguments are texts, where only the tools' schemas say it."""

from typing import Any

import pytest

from schemas.request import Request
from stages.preprocess.answer_form import AnswerForm, answer_spec
from stages.preprocess.text_arguments import text_arguments
from stages.preprocess.tool_choice import ToolUse


def tool(name: str, properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


SCHEMAS: list[tuple[Any, bool]] = [
    ({"type": "string"}, True),
    ({"type": ["string", "null"]}, True),
    ({"enum": ["1", "2"]}, True),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
    ({"type": "integer"}, False),
    ({"type": ["string", "integer"]}, False),
    ({"type": [{}]}, False),
    ({"enum": [1, "2"]}, False),
    ({"anyOf": [{"type": "string"}, {"type": "number"}]}, False),
    ({"anyOf": [{"type": "null"}]}, False),
    ({}, False),
    (True, False),
]


@pytest.mark.parametrize(("schema", "is_text"), SCHEMAS)
def test_texts_and_nothing_else(schema: Any, is_text: bool) -> None:
    """A zip code stays a text; what may be a number too is read as JSON."""
    assert text_arguments([tool("f", {"a": schema})]) == (["f a"] if is_text else [])


def test_of_all_tools() -> None:
    """Each by its tool's name; tools without parameters have none."""
    tools = [tool("f", {"a": {"type": "string"}, "b": {}}), tool("g", {"c d": {"type": "string"}}), tool("h", None)]
    assert text_arguments([*tools, {"type": "function"}, {"function": {"name": "i"}}]) == ["f a", "g c d"]


@pytest.mark.parametrize(("family", "told"), [("qwen3_coder", ["f a"]), ("hermes", []), ("", [])])
def test_only_told_where_the_model_does_not_say(family: str, told: list[str]) -> None:
    """Tickets carry them for families that write values between tags."""
    form = AnswerForm(ToolUse(shown=[tool("f", {"a": {"type": "string"}})], tools=family))
    spec = answer_spec(Request(id="r", session="s", prompt="x"), form, "msgpack", False)
    assert spec.text_arguments == told
