"""What checking a schema costs, whatever it is: a bounded number of steps, since nobody else is served meanwhile."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft201909Validator, Draft202012Validator, FormatChecker, SchemaError

from schemas.faults import Fault, RequestFault
from stages.preprocess import json_schema, schema_references
from stages.preprocess.json_schema import MAX_PARTS, MAX_PATTERN_TEXT, check_schema

INTEGER = 2**64
ANY: dict[str, Any] = {}


def fault_of(schema: Any) -> Fault:
    with pytest.raises(RequestFault) as caught:
        check_schema(schema, "s")
    assert len(caught.value.fault.message) < 500
    return caught.value.fault


def chain(links: int) -> dict[str, Any]:
    """A reference that leads to the last of so many definitions by way of all others."""
    links_on = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(links)}
    return {"$defs": {**links_on, f"a{links}": {"type": "string"}}, "$ref": "#/$defs/a0"}


@pytest.mark.parametrize(
    "schema", [chain(MAX_PARTS - 2), {"$defs": {"a": {}}, "anyOf": [{"$ref": "#/$defs/a"}] * (MAX_PARTS - 2)}]
)
def test_each_reference_is_followed_once(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain, or a crowd of references to the same place: one look-up for each of them."""
    looked_up: list[str] = []
    monkeypatch.setattr(schema_references, "found_at", counting(schema_references.found_at, looked_up))
    check_schema(schema, "s")
    assert len(looked_up) == json.dumps(schema).count("$ref")


def counting(found_at: Any, looked_up: list[str]) -> Any:
    def counted(root: Any, reference: str) -> Any:
        looked_up.append(reference)
        return found_at(root, reference)

    return counted


TOO_MANY: list[dict[str, Any]] = [
    chain(MAX_PARTS - 1),
    {"allOf": [{}] * MAX_PARTS},
    {"allOf": [True] * MAX_PARTS},
    {"$defs": {f"a{n}": {} for n in range(MAX_PARTS)}},
    {"anyOf": [{"items": {}}] * (MAX_PARTS // 2)},
]


@pytest.mark.parametrize("schema", TOO_MANY)
def test_too_many_schemas_are_refused_before_any_is_checked(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they are nested."""
    checked: list[str] = []

    def check_kinds(_: dict[str, Any], path: str) -> None:
        checked.append(path)

    monkeypatch.setattr(json_schema, "check_kinds", check_kinds)
    fault = fault_of(schema)
    assert (fault.code, fault.param) == ("invalid_request", "s")
    assert not checked


def test_as_many_schemas_as_may_be() -> None:
    """The largest that is served."""
    check_schema({"allOf": [ANY] * (MAX_PARTS - 1)}, "s")


WHERE: list[tuple[str, dict[str, Any]]] = [
    ("s.$ref", {"$ref": "#/anyOf/" + "9" * 5000, "anyOf": [{}]}),
    ("s.$ref", {"$ref": "#/anyOf/1", "anyOf": [{}]}),
    ("s.$ref", {"$ref": "#/anyOf/\u0660", "anyOf": [{}]}),
    ("s.$ref", {"$ref": "#\n"}),
    ("s.$defs.b.$ref", {"$defs": {"a": {"$ref": "#/$defs/b", "type": "object"}, "b": {"$ref": "#/$defs/b"}}}),
    ("s.properties.a.maximum", {"properties": {"a": {"maximum": INTEGER}}}),
    ("s.enum[1]", {"enum": [0, -INTEGER]}),
    ("s.unevaluatedItems.pattern", {"unevaluatedItems": {"pattern": "((a{1,1000}){1,1000}){1,1000}"}}),
    ("s", {"allOf": [{"pattern": "|" * 8000}] * (MAX_PATTERN_TEXT // 8000 + 1)}),
    (f"s.properties.{'k' * 64}.type", {"properties": {"k" * 9000: {"type": "x"}}}),
]


@pytest.mark.parametrize(("field", "schema"), WHERE)
def test_where_it_is_wrong(field: str, schema: dict[str, Any]) -> None:
    """400 that names the field; names in its path are cut, since each is said again for all that it holds."""
    fault = fault_of(schema)
    assert (fault.code in ("invalid_request", "unsupported"), fault.param) == (True, field)


def test_an_integer_that_cannot_even_be_written() -> None:
    """Python makes no text of more than 4300 digits."""
    assert fault_of({"default": [10**5000]}).param == "s.default[0]"


def test_what_references_may_do() -> None:
    """Lead to an item of a list, to a schema that is true, through escapes, or in a circle that says something."""
    check_schema({"$ref": "#/anyOf/0", "anyOf": [True]}, "s")
    check_schema({"$ref": "#/$defs/a~1b~0", "$defs": {"a/b~": {"type": "string"}}}, "s")
    check_schema({"properties": {"a": {"$ref": "#"}}}, "s")
    check_schema({"pattern": r"^\p{L}+$", "minLength": 1.0}, "s")


WRONG: list[tuple[str, Any]] = [
    *((name, 3) for name in ("$id", "$schema", "$comment", "title", "description", "format", "pattern", "$anchor")),
    *((name, "a") for name in ("deprecated", "readOnly", "writeOnly", "uniqueItems", "$vocabulary", "examples")),
    *((name, "a") for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
    *((name, True) for name in ("minimum", "multipleOf", "minLength", "enum", "required", "type", "properties")),
    *((name, -1) for name in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")),
    *((name, 1.5) for name in ("minLength", "maxItems")),
    *((name, 3) for name in ("properties", "patternProperties", "$defs", "definitions", "propertyNames", "items")),
    *((name, []) for name in ("allOf", "anyOf", "oneOf", "prefixItems", "additionalProperties", "type", "items")),
    *((name, 3) for name in ("additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contentSchema")),
    *(("type", value) for value in ("text", ["string", "string"], ["string", "text"], [["string"]])),
    *(("required", value) for value in (["a", "a"], [3], "a")),
    ("multipleOf", 0),
    ("$vocabulary", {"a": 3}),
]


@pytest.mark.parametrize(("keyword", "value"), WRONG)
def test_a_value_of_another_kind(keyword: str, value: Any) -> None:
    """Every keyword that schemas know has to have a value of its kind."""
    assert fault_of({"items": {keyword: value}}).param == f"s.items.{keyword}"


@pytest.mark.parametrize("place", ["properties.a", "$defs.a", "allOf[0]", "prefixItems[0]"])
def test_no_schema_where_one_should_be(place: str) -> None:
    """Only objects, true and false are schemas."""
    name, _, key = place.replace("[0]", "").partition(".")
    assert fault_of({name: {key: 3} if key else [3]}).param == f"s.{place}"


KEYWORDS = st.sampled_from(sorted({name for name, _ in WRONG}))
VALUES = st.sampled_from([value for _, value in WRONG]) | st.integers(0, 3) | st.lists(st.sampled_from("ab"))
SCHEMAS = st.recursive(
    st.dictionaries(KEYWORDS, VALUES, max_size=2),
    lambda inner: st.dictionaries(KEYWORDS, inner | st.lists(inner, max_size=2), max_size=2),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
def test_what_passes_is_a_schema(schema: dict[str, Any]) -> None:
    """The meta-schema agrees with whatever is let through."""
    try:
        check_schema(schema, "s")
    except RequestFault:
        return
    for version in (Draft201909Validator, Draft202012Validator):
        try:
            version.check_schema(schema, format_checker=FormatChecker(formats=()))
        except SchemaError as error:
            refused = error
        else:
            return
    raise refused
