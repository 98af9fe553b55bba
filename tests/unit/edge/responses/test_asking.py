"""A body of `/v1/responses` in the words of a request, and its faults in the words of the body."""

from typing import Any

import pydantic
import pytest

from schemas.faults import Fault, RequestFault
from stages.edge.responses.asking import as_asked, options_of
from stages.edge.responses.body import LOGPROBS, CreateResponse
from stages.edge.responses.input_items import input_items

TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}


def options(**body: Any) -> dict[str, Any]:
    asked = CreateResponse.model_validate({"input": "Hi", **body})
    found = options_of(asked, input_items(asked.input))
    del found["messages"]
    assert found.pop("model") == ""
    return found


def test_nothing_is_said_that_was_not_asked() -> None:
    """What is left out, or null, is left to the model's own configuration."""
    assert options() == options(temperature=None, tools=None, text=None, reasoning=None, store=True, stream=True) == {}


def test_sampling() -> None:
    """Values reach the request under its own names."""
    same = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 7, "stop": ["a"], "logit_bias": {"5": 1.0}}
    assert options(**same) == same
    assert options(max_output_tokens=9, include_stop_str_in_output=True) == {"max_tokens": 9, "include_stop": True}
    assert options(include=[LOGPROBS]) == {"logprobs": 0}
    assert options(include=[LOGPROBS], top_logprobs=3) == {"logprobs": 3}
    assert options(user="u", safety_identifier="s") == {"user": "u"}
    assert options(safety_identifier="s") == {"user": "s"}


def test_tools() -> None:
    """Tools are flat here, and nested in a chat; so is the choice of one."""
    nested = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    assert options(tools=[TOOL], tool_choice={"type": "function", "name": "f"}, parallel_tool_calls=False) == {
        "tools": [{"type": "function", "function": nested}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
    }
    assert options(tool_choice="required") == {"tool_choice": "required"}
    assert options(tools=[]) == {}


def test_formats() -> None:
    """A JSON Schema is flat here, and nested in a chat."""
    schema = {"type": "object"}
    wanted = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    assert options(text=wanted) == {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    }
    assert options(text={"format": {"type": "json_object"}}) == {"response_format": {"type": "json_object"}}
    assert options(text={"format": {"type": "text"}, "verbosity": "medium"}) == {}


def test_effort() -> None:
    """The effort goes to the template; `none` asks those that can be asked not to think."""
    assert options(reasoning={"effort": "low", "summary": "auto"}) == {"template_options": {"reasoning_effort": "low"}}
    assert options(reasoning={"effort": "none"}, chat_template_kwargs={"a": 1}) == {
        "template_options": {"reasoning_effort": "none", "enable_thinking": False, "a": 1}
    }


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"include": ["reasoning.encrypted_content"]}, "include[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
    ],
)
def test_what_is_not_served_is_named(body: dict[str, Any], param: str) -> None:
    """Built-in tools and the like are refused by name, never ignored."""
    with pytest.raises(RequestFault) as raised:
        options(**body)
    assert raised.value.param == param


@pytest.mark.parametrize(
    "body",
    [
        {"conversation": "c"},
        {"prompt": {"id": "p"}},
        {"max_tool_calls": 3},
        {"truncation": "auto"},
        {"service_tier": "flex"},
        {"stream_options": {"include_obfuscation": True}},
        {"metadata": {"k" * 65: "v"}},
        {"metadata": {"k": "v" * 513}},
        {"metadata": {str(n): "" for n in range(17)}},
        {"max_tokens": 5},
        {"n": 2},
        {"temperature": "hot"},
        {"reasoning": {"effort": "huge"}},
        {"reasoning": {"summary": "detailed"}},
    ],
)
def test_wrong_and_unknown_fields(body: dict[str, Any]) -> None:
    """OpenAI's fields that are not served pass at the value that changes nothing alone; others are unknown."""
    with pytest.raises(pydantic.ValidationError):
        CreateResponse.model_validate({"input": "x", **body})


def test_what_changes_nothing_passes() -> None:
    """Clients that write every field down are served."""
    CreateResponse.model_validate(
        {"input": "x", "conversation": None, "truncation": "disabled", "service_tier": "auto", "max_tool_calls": None}
    )


@pytest.mark.parametrize(
    ("param", "asked"),
    [
        ("sampling.max_tokens", "max_output_tokens"),
        ("sampling.temperature", "temperature"),
        ("sampling.logprobs", "top_logprobs"),
        ("messages[3].content", "input"),
        ("messages", "input"),
        ("tools[1].function.name", "tools[1].name"),
        ("response_format", "text.format"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("template_options.x", "chat_template_kwargs.x"),
        ("template_options.reasoning_effort", "reasoning.effort"),
        ("include_stop", "include_stop_str_in_output"),
        ("model", "model"),
        ("", ""),
    ],
)
def test_faults_name_the_field_as_the_client_wrote_it(param: str, asked: str) -> None:
    """A fault of a field of the request is one of the field that it came from."""
    assert as_asked(Fault("invalid_request", "m", param)) == Fault("invalid_request", "m", asked)
