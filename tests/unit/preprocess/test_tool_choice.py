"""Tools: which the model is shown, which it must call, and how its calls come out of the answer."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from schemas.codec import unpack_ids
from schemas.faults import RequestFault
from schemas.request import ChatMessage, Request
from stages.preprocess import tool_choice
from stages.preprocess.answer_form import AnswerForm, answer_form
from stages.preprocess.preparation import Preparation, Ready, Refused
from tests.unit.preprocess.test_preparation import incoming
from tests.unit.preprocess.vocabularies import card, model

PLACE: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"left": {"$ref": "#"}, "leaf": {"$ref": "#/$defs/leaf"}},
    "additionalProperties": False,
    "$defs": {"leaf": {"type": "integer"}},
}


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    function = {"name": name} if parameters is None else {"name": name, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [tool("weather", PLACE), tool("now"), tool("grow", TREE)]
BY_NAME = {"type": "function", "function": {"name": "weather"}}


def request(choice: Any = None, **changes: Any) -> Request:
    values: dict[str, Any] = {"tools": TOOLS, **changes}
    return Request(id="r", session="s", messages=[ChatMessage("user", "hi")], tool_choice=choice, **values)


def form_of(wanted: Request, **of_card: Any) -> AnswerForm:
    values: dict[str, Any] = {"structured": True, "tool_parser": "hermes", **of_card}
    return answer_form(wanted, card("tiny", **values))


def schema_of(form: AnswerForm) -> Callable[[Any], bool]:
    """Whether what the grammar has to hold allows a value."""
    assert form.structured is not None
    assert form.structured.kind == "json"
    validator: Any = Draft202012Validator(json.loads(form.structured.value))
    return validator.is_valid


def fault_of(bad: Request, **of_card: Any) -> tuple[str, str]:
    with pytest.raises(RequestFault) as caught:
        form_of(bad, **of_card)
    return caught.value.fault.code, caught.value.fault.param


LONG, WIDE = {"description": "x" * 1000}, {"anyOf": [{"type": "string"}] * 99}


@pytest.mark.parametrize("tools", [[tool(f"t{n}", LONG) for n in range(200)], [tool(f"t{n}", WIDE) for n in range(85)]])
def test_parameters_too_large_together(tools: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before the first of them is checked: that of all would hold everybody up."""
    monkeypatch.delattr(tool_choice, "check_schema")
    assert fault_of(request("required", tools=tools)) == ("invalid_request", "tools")


@pytest.mark.parametrize("choice", [None, "auto"])
def test_auto(choice: str | None) -> None:
    """The model's own form of calls; nothing holds it to them."""
    form = form_of(request(choice))
    assert (form.shown_tools, form.use.must_know, form.use.tools, form.structured) == (TOOLS, True, "hermes", None)


def test_none_and_no_tools() -> None:
    """The model does not get to see them, and nothing is split off."""
    for wanted in (request("none"), request(None, tools=[]), request("none", tools=None)):
        form = form_of(wanted, tool_parser="")
        assert (form.shown_tools, form.use.tools, form.structured) == (None, "", None)


def test_required() -> None:
    """The answer is a list of calls, each of a tool with parameters by its schema; also where no parser is known."""
    form = form_of(request("required"), tool_parser="")
    assert (form.shown_tools, form.use.must_know, form.use.tools) == (TOOLS, False, "json_list")
    assert form.structured is not None
    assert form.structured.param == "tools"
    valid = schema_of(form)
    weather = {"name": "weather", "parameters": {"city": "Paris"}}
    assert valid([weather])
    assert valid([weather, {"name": "now", "parameters": {}}])
    assert valid([{"name": "grow", "parameters": {"left": {"left": {"leaf": 1}}, "leaf": 2}}])
    wrongs: list[Any] = [
        [],
        weather,
        [{"name": "other", "parameters": {}}],
        [{"name": "weather", "parameters": {}}],
        [{"name": "weather"}],
        [{"name": "now", "parameters": {"x": 1}}],
        [{"name": "grow", "parameters": {"left": {"leaf": "x"}}}],
        [{**weather, "more": 1}],
    ]
    assert [wrong for wrong in wrongs if valid(wrong)] == []


def test_required_one_at_a_time() -> None:
    """`parallel_tool_calls` off: a list of one."""
    form = form_of(request("required", parallel_tool_calls=False))
    valid = schema_of(form)
    assert valid([{"name": "now", "parameters": {}}])
    assert not valid([{"name": "now", "parameters": {}}] * 2)


@pytest.mark.parametrize("choice", [BY_NAME, "weather"])
def test_named(choice: Any) -> None:
    """The whole answer is the arguments of that tool."""
    form = form_of(request(choice), tool_parser="")
    assert (form.shown_tools, form.use.tools, form.use.name) == (TOOLS, "json_arguments", "weather")
    assert form.structured is not None
    assert json.loads(form.structured.value) == PLACE


def test_a_named_tool_without_parameters() -> None:
    """It has none: its arguments are the empty object."""
    form = form_of(request("now"))
    valid = schema_of(form)
    assert valid({})
    assert not valid({"x": 1})


def test_nothing_is_split_off_where_that_is_not_wanted() -> None:
    """`split` off: held to the grammar all the same, its text left as it is; `auto` needs no parser then."""
    for choice in ("required", "weather", "auto"):
        assert form_of(request(choice, split=False), tool_parser="").use.tools == ""


@pytest.mark.parametrize(
    ("code", "field", "bad"),
    [
        ("invalid_request", "tool_choice", request("auto", tools=None)),
        ("invalid_request", "tool_choice", request("required", tools=[])),
        ("invalid_request", "tool_choice", request("other")),
        ("invalid_request", "tool_choice", request("")),
        ("invalid_request", "tool_choice.function.name", request({"type": "function"})),
        ("unsupported", "tool_choice.type", request({"type": "allowed_tools"})),
        ("unsupported", "tool_choice.mode", request({**BY_NAME, "mode": "auto"})),
        ("invalid_request", "tools[0].function.parameters", request("f", tools=[tool("f", [])])),
        (
            "invalid_request",
            "tools[1].function.parameters.properties.a.type",
            request("required", tools=[tool("f"), tool("g", {"properties": {"a": {"type": "text"}}})]),
        ),
        ("unsupported", "response_format", request(response_format={"type": "json_object"})),
        ("unsupported", "structured_outputs", request("required", structured_outputs={"regex": "a"})),
    ],
)
def test_what_is_refused(code: str, field: str, bad: Request) -> None:
    """By the name of the field."""
    assert fault_of(bad) == (code, field)


def test_auto_without_a_known_form_of_calls() -> None:
    """F12: tools that could never come out as calls are refused, not passed over."""
    assert fault_of(request(), tool_parser="") == ("unsupported", "tools")
    assert fault_of(request("auto"), tool_parser="") == ("unsupported", "tools")


def test_required_without_grammars() -> None:
    """An engine that holds no grammar cannot be made to call."""
    for choice in ("required", "weather"):
        assert fault_of(request(choice), structured=False)[0] == "unsupported"


KNOWS_TOOLS = "{% if tools %}{{ tools | length }} tools {% endif %}{{ messages[-1].content }}"


def test_the_template_and_the_ticket() -> None:
    """F12: `auto` needs a template that takes tools, `required` does not; both stand in the ticket."""
    served = model(template=KNOWS_TOOLS, structured=True, tool_parser="hermes")
    plain = model(structured=True, tool_parser="hermes")
    outcomes = Preparation().prepare(
        [
            incoming(request(), served),
            incoming(request("none"), served),
            incoming(request("required"), plain),
            incoming(request(), plain),
        ]
    )
    shown, hidden, required, refused = outcomes
    assert isinstance(shown, Ready)
    assert bytes(unpack_ids(shown.prompt)) == b"3 tools hi"
    assert (shown.answer.tools, shown.sampling.structured) == ("hermes", None)
    assert isinstance(hidden, Ready)
    assert bytes(unpack_ids(hidden.prompt)) == b"hi"
    assert isinstance(required, Ready)
    assert required.answer.tools == "json_list"
    assert required.sampling.structured is not None
    assert isinstance(refused, Refused)
    assert (refused.fault.code, refused.fault.param) == ("unsupported", "tools")
