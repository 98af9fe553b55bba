"""Bodies with a million faults: one is enough to refuse them, so no more are looked for, and none is built up."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from pydantic import BaseModel, ValidationError

from stages.edge.chat.body import ChatBody
from stages.edge.completions.body import CompletionBody
from stages.edge.generation.parameters import Body
from stages.edge.http.failures import validation_error
from stages.edge.responses.body import CreateResponse
from stages.edge.routes.tokens_api import DetokenizeBody, TokenizeBody

BODIES = (ChatBody, CompletionBody, CreateResponse, TokenizeBody, DetokenizeBody)
MANY = 5000
FEW = 100
"""A body has about as many fields; each may have one error, and one for each branch of a union."""

HI = {"role": "user", "content": "hi"}
CALL = {"function": {"name": "f"}}
NOTHING: dict[str, Any] = {}
UNKNOWN = {f"k{number}": 0 for number in range(MANY)}


CASES: list[tuple[type[BaseModel], dict[str, Any], str]] = [
    (CompletionBody, {"prompt": [NOTHING] * MANY}, "prompt[0]"),
    (CompletionBody, {"prompt": [["a"] * MANY] * MANY}, "prompt[0][0]"),
    (CompletionBody, {"prompt": ["a"] * MANY}, "prompt"),
    (CompletionBody, {"prompt": [[1]] * MANY}, "prompt"),
    (ChatBody, {"messages": [0] * MANY}, "messages[0]"),
    (ChatBody, {"messages": [HI] * MANY}, "messages"),
    (ChatBody, {"messages": [HI], **UNKNOWN}, "k0"),
    (ChatBody, {"messages": [{**HI, **UNKNOWN}]}, "messages[0].k0"),
    (ChatBody, {"messages": [{"role": "user", "content": [{"x": 1}] * MANY}]}, "messages[0].content[0].type"),
    (ChatBody, {"messages": [{"role": "user", "content": [{**UNKNOWN}]}]}, "messages[0].content[0].type"),
    (ChatBody, {"messages": [{"role": "user", "tool_calls": [0] * MANY}]}, "messages[0].tool_calls[0]"),
    (ChatBody, {"messages": [{"role": "assistant", "tool_calls": [CALL] * MANY}]}, "messages[0].tool_calls"),
    (ChatBody, {"messages": [HI], "tools": [0] * MANY}, "tools[0]"),
    (ChatBody, {"messages": [HI], "tools": [NOTHING] * MANY}, "tools"),
    (ChatBody, {"messages": [HI], "stop": [0] * MANY}, "stop[0]"),
    (ChatBody, {"messages": [HI], "stop_token_ids": ["a"] * MANY}, "stop_token_ids[0]"),
    (ChatBody, {"messages": [HI], "structured_outputs": {"choice": [0] * MANY}}, "structured_outputs.choice[0]"),
    (ChatBody, {"messages": [HI], "structured_outputs": UNKNOWN}, "structured_outputs.k0"),
    (ChatBody, {"messages": [HI], "tool_choice": UNKNOWN}, "tool_choice.type"),
    (ChatBody, {"messages": [HI], "logit_bias": dict.fromkeys(UNKNOWN, "a")}, "logit_bias.k0"),
    (CreateResponse, {"input": [0] * MANY}, "input[0]"),
    (CreateResponse, {"input": "a", "include": [0] * MANY}, "include[0]"),
    (CreateResponse, {"input": "a", "metadata": UNKNOWN}, "metadata.k0"),
    (CreateResponse, {"input": "a", "text": {"format": UNKNOWN}}, "text.format.type"),
    (TokenizeBody, {"messages": [0] * MANY}, "messages[0]"),
    (DetokenizeBody, {"tokens": ["a"] * MANY}, "tokens[0]"),
    (DetokenizeBody, {"tokens": [], **UNKNOWN}, "k0"),
]


@pytest.mark.parametrize(("kind", "body", "param"), CASES)
def test_few_errors_are_built_and_the_first_is_told(kind: type[BaseModel], body: dict[str, Any], param: str) -> None:
    """A body of a few MB must not stop an edge for seconds: of what is wrong with it only a little is collected."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert caught.value.error_count() < FEW
    errors = [{**error, "loc": ("body", *error["loc"])} for error in caught.value.errors(include_url=False)]
    assert validation_error(errors, body).param == param


@pytest.mark.parametrize("kind", BODIES)
def test_every_collection_ends_at_its_first_error(kind: type[BaseModel]) -> None:
    """Whatever field is added: a list or dict whose items are checked fails fast, and every model bounds its names."""
    collections, models = 0, 0
    for schema in _schemas(kind.__pydantic_core_schema__):
        if schema.get("type") in ("list", "dict") and _are_checked(schema):
            collections += 1
            assert schema.get("fail_fast") is True, schema
        if schema.get("type") == "model":
            models += 1
            assert issubclass(schema["cls"], Body)
    assert collections
    assert models


def test_a_list_that_is_too_long_is_told_its_length() -> None:
    """Not what its items are not."""
    body = {"prompt": ["a"] * 200}
    with pytest.raises(ValidationError) as caught:
        CompletionBody.model_validate(body)
    errors = [{**error, "loc": ("body", *error["loc"])} for error in caught.value.errors(include_url=False)]
    assert validation_error(errors, body).message == "prompt: 200 items, at most 128 are served"


def test_a_long_name_is_not_sent_back_whole() -> None:
    """An unknown field may have a name of megabytes."""
    body = {"x" * 100_000: 1}
    errors = [{"type": "extra_forbidden", "loc": ("body", *body), "msg": "no"}]
    error = validation_error(errors, body)
    assert error.code == "unknown_parameter"
    assert error.param == "x" * 64


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """All parts of a core schema that are schemas, or might be."""
    if isinstance(schema, dict):
        part = cast("dict[str, Any]", schema)
        yield part
        for name, value in part.items():
            if name not in ("metadata", "ref", "serialization"):
                yield from _schemas(value)
    elif isinstance(schema, list | tuple):
        for value in cast("list[Any]", schema):
            yield from _schemas(value)


def _are_checked(schema: dict[str, Any]) -> bool:
    items: dict[str, Any] = schema.get("items_schema") or schema.get("values_schema") or {"type": "any"}
    return items["type"] != "any"
