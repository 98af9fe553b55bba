"""Bodies that are no JSON, or no body at all: refused in words, whatever they are."""

import json
from collections.abc import Mapping
from typing import Any, cast

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.edge.http.body import check_content_type, parse_json
from stages.edge.http.errors import ApiError
from tests.unit.edge.serving import serving
from tests.unit.edge.wire import Wire, scope


def refusal(data: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_json(data)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a": 1} x',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 10_000 + b"}",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": "\xff"}',
        b"'a'",
        b'{"a": 01}',
        b'{"a": "\x00"}',
    ],
)
def test_what_is_no_json_is_a_400(data: bytes) -> None:
    """Bad JSON, NaN, endless numbers, nesting without end, broken UTF-8: never another error than this one."""
    assert refusal(data).code == "invalid_json"


@pytest.mark.parametrize(
    ("body", "param", "offset"),
    [
        (r'{"messages": [{"role": "user", "content": "hi \ud83d"}]}', "messages[0].content", 3),
        (r'{"messages": [{"role": "user", "name": "\udc00x", "content": "hi"}]}', "messages[0].name", 0),
        (r'{"stop": ["a", "b\ud83dc"]}', "stop[1]", 1),
        (r'{"tools": [{"function": {"arguments": "{\ud83d"}}]}', "tools[0].function.arguments", 1),
        (r'{"metadata": {"a\ud83d": 1}}', "metadata", 1),
        (r'["\ude00\ud83d"]', "[0]", 0),
    ],
)
def test_a_lone_surrogate_is_a_400_with_field_and_offset(body: str, param: str, offset: int) -> None:
    """B11: in content, names, stop strings, tool arguments, keys. Pairs in the same body are none."""
    error = refusal(body.encode())
    assert (error.param, error.code) == (param, "invalid_request")
    assert f"character {offset}" in error.message


def test_a_pair_of_surrogates_is_a_character() -> None:
    """B11: what belongs together is fine."""
    assert parse_json(rb'{"content": "\ud83d\ude00"}') == {"content": "😀"}


def test_of_duplicate_keys_the_last_one_counts() -> None:
    """As in Python and JavaScript; no error of ours."""
    assert parse_json(b'{"n": 1, "n": 2}') == {"n": 2}


@given(st.binary(max_size=60) | st.text(max_size=40).map(lambda text: json.dumps(text).encode()[:-1]))
@settings(max_examples=300)
def test_any_bytes_are_json_or_a_400(data: bytes) -> None:
    """Whatever arrives, nothing else is raised, and the envelope can be sent."""
    try:
        parse_json(data)
        status, answer = 200, b"{}"
    except ApiError as error:
        status, answer = error.status, bytes(error.response().body)
    assert status in (200, 400)
    json.loads(answer)


@pytest.mark.parametrize("text", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_other_content_types_are_a_415(text: str) -> None:
    """Nothing is guessed: curl without a header sends a form."""
    with pytest.raises(ApiError) as caught:
        check_content_type(text)
    assert caught.value.status == 415


@pytest.mark.parametrize(
    "text", ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"]
)
def test_json_content_types_pass(text: str) -> None:
    """With parameters, in any case."""
    check_content_type(text)


async def post(path: str, content: bytes, headers: Mapping[str, str] | None = None) -> httpx.Response:
    _, client = serving([])
    async with client:
        return await client.post(path, content=content, headers={"content-type": "application/json", **(headers or {})})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tokens": "many"}, "tokens"),
        ({"tokens": [1, "x"]}, "tokens[1]"),
        ({"tokens": [2**70]}, "tokens[0]"),
        ({"tokens": [1.5]}, "tokens[0]"),
        ({"tokens": None}, "tokens"),
        ({}, "tokens"),
        ({"tokens": [], "mood": "good"}, "mood"),
        ({"tokens": [], "model": {"a": 1}}, "model"),
        ([], None),
        ("x", None),
    ],
)
async def test_a_wrong_field_is_a_400_that_names_it(body: Any, param: str | None) -> None:
    """C5: never 422, never `detail`, never a Python object in the text."""
    answer = await post("/detokenize", json.dumps(body).encode())
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert "detail" not in answer.json()
    assert not any(word in error["message"] for word in ("pydantic", "Traceback", "<class", "input_value"))


async def test_no_body_and_no_json_over_http() -> None:
    """C5: an empty body 400, another type 415, both in the envelope."""
    empty = await post("/detokenize", b"")
    form = await post("/detokenize", b"tokens=1", {"content-type": "application/x-www-form-urlencoded"})
    bad = await post("/detokenize", b'{"tokens": [1,')
    assert [each.status_code for each in (empty, form, bad)] == [400, 415, 400]
    assert all(set(each.json()["error"]) == {"message", "type", "param", "code"} for each in (empty, form, bad))


async def test_a_client_that_leaves_while_it_sends_is_gone() -> None:
    """C8: nobody is told, nothing is asked for, and it counts as a departure, not as an error of the client."""
    asked, http = serving([])
    app = cast("Any", http)._transport.app
    wire = Wire(bodies=[b'{"tokens": [1', b", 2]"])
    receive = wire.receive

    async def half() -> Any:
        message = await receive()
        wire.bodies = []
        wire.gone.set()
        return {**message, "more_body": True} if message["type"] == "http.request" else message

    headers = [(b"content-type", b"application/json")]
    request: dict[str, Any] = {**scope(), "path": "/detokenize", "raw_path": b"/detokenize", "headers": headers}
    await app(request, half, wire.send)
    assert request["headrace.exchange"].outcome == "client_gone"
    assert not asked.asked


async def test_a_body_that_does_not_come_is_a_408() -> None:
    """In the envelope, and the connection ends."""
    _, http = serving([], body_timeout_s=0.05)
    app = cast("Any", http)._transport.app
    wire = Wire()
    headers = [(b"content-type", b"application/json")]
    await app(
        {**scope(), "path": "/detokenize", "raw_path": b"/detokenize", "headers": headers}, wire.receive, wire.send
    )
    assert wire.status == 408
    assert wire.headers[b"connection"] == b"close"
    assert json.loads(wire.body)["error"]["message"]
