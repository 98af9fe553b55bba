"""What an answer has to match: read from the request, with everything refused by name that an engine could not take."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.faults import Fault, RequestFault
from schemas.request import ChatMessage, Request, Sampling
from schemas.ticket import Structured
from stages.preprocess.answer_form import answer_form
from stages.preprocess.structured import structured_of
from tests.unit.preprocess.vocabularies import card

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 100_000}, "child": {"$ref": "#"}},
    "required": ["name"],
}


def request(**changes: Any) -> Request:
    return Request(id="r", session="s", messages=[ChatMessage("user", "hi")], **changes)


def by_schema(schema: Any) -> Request:
    return request(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})


def by(**outputs: Any) -> Request:
    return request(structured_outputs=outputs)


def fault_of(bad: Request) -> Fault:
    with pytest.raises(RequestFault) as caught:
        structured_of(bad)
    assert len(caught.value.fault.message) < 500
    return caught.value.fault


@pytest.mark.parametrize(
    ("good", "kind", "value"),
    [
        (request(response_format={"type": "json_object"}), "json_object", ""),
        (by_schema(SCHEMA), "json", SCHEMA),
        (by(json=SCHEMA), "json", SCHEMA),
        (by(json=json.dumps(SCHEMA)), "json", SCHEMA),
        (by(json_object=True), "json_object", ""),
        (by(regex=r"[a-z]{1,100}\.com", json=None), "regex", r"[a-z]{1,100}\.com"),
        (by(regex=""), "regex", ""),
        (by(choice=["yes", "nö"]), "choice", ["yes", "nö"]),
        (by(grammar='root ::= "a"'), "grammar", 'root ::= "a"'),
    ],
)
def test_what_is_served(good: Request, kind: str, value: Any) -> None:
    """Each form of each field, with the field that it came from."""
    found = structured_of(good)
    assert found is not None
    assert found.kind == kind
    assert (json.loads(found.value) if kind in ("json", "choice") else found.value) == value
    assert found.param == ("response_format" if good.response_format else "structured_outputs")


@pytest.mark.parametrize("neutral", [request(), request(response_format={"type": "text"})])
def test_nothing_is_asked_for(neutral: Request) -> None:
    """Text is what an answer is without a grammar."""
    assert structured_of(neutral) is None


def test_the_order_of_properties_is_kept() -> None:
    """It is the order in which a model writes them."""
    found = structured_of(by_schema({"type": "object", "properties": {"z": {}, "a": {}, "m": {}}}))
    assert found is not None
    assert list(json.loads(found.value)["properties"]) == ["z", "a", "m"]


FORMAT, OUTPUTS = "response_format", "structured_outputs"
SCHEMA_AT = "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        (f"{FORMAT}.type", request(response_format={"json_object": False})),
        (f"{FORMAT}.type", request(response_format={"type": 3})),
        (f"{FORMAT}.type", request(response_format={"type": "structural_tag"})),
        (f"{FORMAT}.schema", request(response_format={"type": "json_object", "schema": {}})),
        (f"{FORMAT}.json_schema", request(response_format={"type": "json_schema"})),
        (SCHEMA_AT, request(response_format={"type": "json_schema", "json_schema": {"name": "x"}})),
        (
            f"{FORMAT}.json_schema.strict",
            request(response_format={"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}),
        ),
        (
            f"{FORMAT}.json_schema.other",
            request(response_format={"type": "json_schema", "json_schema": {"schema": {}, "other": 1}}),
        ),
        (SCHEMA_AT, by_schema("")),
        (SCHEMA_AT, by_schema([])),
        (SCHEMA_AT, by_schema({"a": "x" * 200_000})),
        (f"{SCHEMA_AT}.properties.a.type", by_schema({"properties": {"a": {"type": "text"}}})),
        (f"{SCHEMA_AT}.properties.a.not", by_schema({"properties": {"a": {"not": {}}}})),
        (f"{SCHEMA_AT}.anyOf[1].uniqueItems", by_schema({"anyOf": [{}, {"uniqueItems": True}]})),
        (f"{SCHEMA_AT}.$defs.a.maxItems", by_schema({"$defs": {"a": {"maxItems": 10**9}}})),
        (f"{SCHEMA_AT}.enum", by_schema({"enum": []})),
        (f"{SCHEMA_AT}.prefixItems", by_schema({"prefixItems": [], "items": [{}]})),
        (f"{SCHEMA_AT}.$ref", by_schema({"$ref": "#/x/a", "x": {"a": {"pattern": "((a{1,9999}){1,9999})"}}})),
        (SCHEMA_AT, by_schema({"items": {"enum": list(range(3000))}})),
        (SCHEMA_AT, by_schema({"properties": {f"p{n}": {} for n in range(1500)}})),
        (f"{SCHEMA_AT}.items.pattern", by_schema({"items": {"pattern": "((a{1,1000}){1,1000}){1,1000}"}})),
        (f"{SCHEMA_AT}.$ref", by_schema({"$ref": "#"})),
        (f"{SCHEMA_AT}.$ref", by_schema({"$ref": "#/$defs/a"})),
        (f"{SCHEMA_AT}.$ref", by_schema({"$ref": "https://example.com/schema"})),
        (f"{SCHEMA_AT}.$ref", by_schema({"$ref": "#name", "$defs": {"a": {"$anchor": "name"}}})),
        (
            f"{SCHEMA_AT}.$defs.a.$ref",
            by_schema(
                {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
            ),
        ),
        (OUTPUTS, by()),
        (OUTPUTS, by(regex="a", choice=["b"])),
        (OUTPUTS, request(structured_outputs={"regex": "a"}, response_format={"type": "json_object"})),
        (f"{OUTPUTS}.whitespace_pattern", by(regex="a", whitespace_pattern=" ")),
        (f"{OUTPUTS}.json", by(json="")),
        (f"{OUTPUTS}.json", by(json="{")),
        (f"{OUTPUTS}.json", by(json=True)),
        (f"{OUTPUTS}.json", by(json=" " * 2_000_000)),
        (f"{OUTPUTS}.json.maximum", by(json={"maximum": 2**64})),
        (f"{OUTPUTS}.json.maximum", by(json=json.dumps({"maximum": 2**64}))),
        (f"{OUTPUTS}.json_object", by(json_object=False)),
        (f"{OUTPUTS}.regex", by(regex=3)),
        (f"{OUTPUTS}.regex", by(regex="a\0b")),
        (f"{OUTPUTS}.regex", by(regex="a" * 10_000)),
        (f"{OUTPUTS}.regex", by(regex="(((a{1,1000}){1,1000}){1,1000})")),
        (f"{OUTPUTS}.regex", by(regex="(" * 1000 + ")" * 1000)),
        (f"{OUTPUTS}.regex", by(regex="a)")),
        (f"{OUTPUTS}.regex", by(regex="(?=a)b")),
        (f"{OUTPUTS}.regex", by(regex=r"(a)\1")),
        (f"{OUTPUTS}.regex", by(regex="\ud83d")),
        (f"{OUTPUTS}.choice", by(choice=[])),
        (f"{OUTPUTS}.choice", by(choice="yes")),
        (f"{OUTPUTS}.choice[1]", by(choice=["yes", 3])),
        (f"{OUTPUTS}.choice[0]", by(choice=[""])),
        (f"{OUTPUTS}.choice", by(choice=["x" * 70_000])),
        (f"{OUTPUTS}.choice", by(choice=["x"] * 20_000)),
        (f"{OUTPUTS}.grammar", by(grammar="  ")),
        (f"{OUTPUTS}.grammar", by(grammar="x" * 70_000)),
        (f"{OUTPUTS}.grammar", by(grammar={})),
    ],
)
def test_what_is_refused(field: str, bad: Request) -> None:
    """E7: a wrong or harmful value is one fault that names its field."""
    fault = fault_of(bad)
    assert fault.param == field
    assert fault.code in ("invalid_request", "unsupported")


def test_a_property_may_have_any_name() -> None:
    """`not` and `if` are keywords of schemas, not of what they describe."""
    assert structured_of(by_schema({"properties": {"not": {}, "if": {"type": "string"}, "$ref": {}}})) is not None


def test_an_engine_without_grammars() -> None:
    """Refused by the field's name, never passed over."""
    for bad, field in ((by_schema(SCHEMA), FORMAT), (by(regex="a"), OUTPUTS)):
        with pytest.raises(RequestFault) as caught:
            answer_form(bad, card(structured=False))
        assert (caught.value.fault.code, caught.value.fault.param) == ("unsupported", field)
    assert answer_form(by(regex="a"), card(structured=True)).structured == Structured("regex", "a", param=OUTPUTS)


@pytest.mark.parametrize(
    ("field", "sampling"),
    [
        ("min_tokens", Sampling(min_tokens=1)),
        ("ignore_eos", Sampling(ignore_eos=True)),
        ("allowed_token_ids", Sampling(allowed_token_ids=[1])),
    ],
)
def test_what_contradicts_a_grammar(field: str, sampling: Sampling) -> None:
    """Where grammar and sampling leave no token, an engine takes any: such pairs are refused."""
    with pytest.raises(RequestFault, match="structured_outputs") as caught:
        answer_form(request(structured_outputs={"regex": "a"}, sampling=sampling), card(structured=True))
    assert caught.value.fault.param == f"sampling.{field}"


KEYWORDS = [
    *("type", "properties", "required", "items", "prefixItems", "anyOf", "allOf", "oneOf", "enum", "const", "$ref"),
    *("$defs", "definitions", "$schema", "$id", "pattern", "patternProperties", "additionalProperties", "format"),
    *("propertyNames", "minItems", "maxItems", "minLength", "maxLength", "minimum", "not"),
]
VERSIONS = ["http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2019-09/schema", "other"]
WORDS = ["string", "object", "#", "#/$defs/a", "#/a/0", "a", "((", "", *VERSIONS]
LEAVES = st.none() | st.booleans() | st.integers(-2, 10**9) | st.floats(0, 5) | st.sampled_from(WORDS)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, min_size=1, max_size=4)
    ),
    max_leaves=12,
)


def param_of(outputs: dict[str, Any]) -> str:
    """The field of the fault, "" where it passes."""
    try:
        structured_of(request(structured_outputs=outputs))
    except RequestFault as error:
        return error.fault.param
    return ""


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, st.sampled_from([*VERSIONS, None]))
def test_whatever_a_schema_is(schema: Any, version: str | None) -> None:
    """It passes, or one fault names its place; nothing else is ever raised."""
    if isinstance(schema, dict) and version is not None:
        schema["$schema"] = version
    param = param_of({"json": schema})
    assert param.startswith(OUTPUTS) or (isinstance(schema, dict) and not param)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab()[]{}|*+?\\^$.,:=!<1290-"), max_size=40))
def test_whatever_a_regex_is(pattern: str) -> None:
    """Likewise."""
    assert param_of({"regex": pattern}) in ("", f"{OUTPUTS}.regex")
