"""Bytes to requests: whoever can be told is told, with the field; nothing else is raised whatever arrives."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import Encoding, encode
from schemas.request import ChatMessage, Envelope, Request
from stages.preprocess.reading import UnanswerableError, UnreadableError, read

JSON, MSGPACK = "application/json", "application/msgpack"
GOOD: dict[str, Any] = {"v": 1, "id": "r", "session": "s", "messages": [{"role": "user", "content": "hi"}]}


def unreadable(data: bytes, content_type: str) -> tuple[str, str]:
    with pytest.raises(UnreadableError) as caught:
        read(data, content_type)
    assert (caught.value.envelope.id, caught.value.envelope.session) == ("r", "s")
    return caught.value.fault.fault.param, caught.value.fault.fault.message


def test_both_encodings() -> None:
    """The one that the header names; msgpack where there is none."""
    request = Request(id="r", session="s", messages=[ChatMessage("user", "hi")])
    assert read(encode(request, "json"), f"{JSON}; charset=utf-8") == (request, "json")
    assert read(encode(request), MSGPACK) == read(encode(request), "") == (request, "msgpack")


WRONG_TYPES: list[tuple[str, dict[str, Any]]] = [
    ("messages[0].content", {"messages": [{"role": "user", "content": 3}]}),
    ("messages[0].role", {"messages": [{"content": "x"}]}),
    ("messages[0].tool_calls[0].function", {"messages": [{"role": "assistant", "tool_calls": [{}]}]}),
    ("messages", {"messages": "x"}),
    ("n", {"n": "two"}),
    ("n", {"n": True}),
    ("sampling.temperature", {"sampling": {"temperature": "hot"}}),
    ("sampling.stop_token_ids[1]", {"sampling": {"stop_token_ids": [1, "x"]}}),
    ("prompt[17]", {"prompt": [*range(17), 1.5]}),
    ("stop[2]", {"stop": ["a", "b", 3]}),
    ("v", {"v": 9}),
]


@pytest.mark.parametrize(("field", "changes"), WRONG_TYPES)
def test_a_wrong_type_is_named(field: str, changes: dict[str, Any]) -> None:
    """In both encodings, by the dotted path."""
    for content_type, encoder in ((JSON, msgspec.json.encode), (MSGPACK, msgspec.msgpack.encode)):
        param, message = unreadable(encoder({**GOOD, **changes}), content_type)
        assert param == field
        assert message


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("messages[0].content", '{"messages":[{"role":"user","content":"é\\ud83d"}]'),
        (
            "messages[0].tool_calls[0].function.arguments",
            '{"messages":[{"role":"a","tool_calls":[{"function":{"name":"f","arguments":"é\\ud83d"}}]}]',
        ),
        ("stop[1]", '{"stop":["a","é\\ud83d"]'),
        ("tools[0].name", '{"tools":[{"name":"é\\ud83dx"}]'),
    ],
)
def test_a_lone_surrogate_in_json_is_named(field: str, text: str) -> None:
    """B11: field and offset, although strict JSON readers only say "malformed"."""
    data = (text + ', "id": "r", "session": "s", "v": 1}').encode()
    param, message = unreadable(data, JSON)
    assert param == field
    assert "surrogate at character 1" in message


def test_a_surrogate_pair_in_json_is_fine() -> None:
    """B11: that is one character."""
    data = json.dumps({**GOOD, "prompt": "\U0001f600"}).encode()
    assert b"\\ud83d\\ude00" in data
    assert read(data, JSON)[0].prompt == "\U0001f600"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_named(number: str) -> None:
    """JSON has no such numbers; many writers write them."""
    data = b'{"id": "r", "session": "s", "sampling": {"temperature": %s}}' % number.encode()
    assert unreadable(data, JSON)[0] == "sampling.temperature"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages[0].content", {"messages": [{"role": "user", "content": "éQQQQ"}]}),
        ("stop[1]", {"stop": ["a", "éQQQQ"]}),
        ("template_options.a.b[2]", {"template_options": {"a": {"b": [1, 2, "éQQQQ"]}}}),
    ],
)
@pytest.mark.parametrize("bad", [b"\xed\xa0\xbd!", b"\xff\xff\xff\xff"])
def test_text_that_is_no_utf8_is_named(field: str, value: dict[str, Any], bad: bytes) -> None:
    """B11 in msgpack: a surrogate as three bytes, or any other bytes."""
    data = msgspec.msgpack.encode({**GOOD, **value}).replace(b"QQQQ", bad)
    param, message = unreadable(data, MSGPACK)
    assert param == field
    assert "at character 1" in message


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (b"", JSON),
        (b"{", JSON),
        (b"[" * 100_000, JSON),
        (b"[]", JSON),
        (b'{"id": "r"}', JSON),
        (b'{"id": 3, "session": "s"}', JSON),
        (b'{"id": "a.b", "session": "s"}', JSON),
        (b'{"id": "r", "session": ">"}', JSON),
        (b'{"id": "r", "session": "\\ud83d"}', JSON),
        (encode(Request(id="r", session="s")), JSON),
        (encode(Request(id="", session="s")), MSGPACK),
    ],
)
def test_what_nobody_can_be_told_of(data: bytes, content_type: str) -> None:
    """No id or session that could stand in a subject, or no encoding that we know."""
    with pytest.raises(UnanswerableError):
        read(data, content_type)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_an_unknown_content_type(encoding: Encoding) -> None:
    """Who sends a readable request under an encoding that we do not know is told so, in the encoding that it has."""
    with pytest.raises(UnreadableError) as raised:
        read(encode(Request(id="r", session="s", prompt="x"), encoding), "text/plain")
    assert raised.value.envelope == Envelope(id="r", session="s")
    assert raised.value.encoding == encoding
    assert raised.value.fault.param == "Content-Type"


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_no_content_type(encoding: Encoding) -> None:
    """Without a header the bytes say which encoding they have."""
    request = Request(id="r", session="s", prompt="x")
    assert read(encode(request, encoding), "") == (request, encoding)


@given(st.binary(max_size=200), st.sampled_from([JSON, MSGPACK, "", "x"]))
def test_random_bytes(data: bytes, content_type: str) -> None:
    """One of two errors, never another."""
    with pytest.raises((UnanswerableError, UnreadableError)):
        read(data, content_type)


@given(st.integers(0, 200), st.integers(0, 255), st.sampled_from(["json", "msgpack"]))
def test_a_request_with_one_wrong_byte(place: int, byte: int, encoding: Any) -> None:
    """It is read, or one of two errors tells."""
    data = bytearray(encode(Request(id="r", session="s", prompt="x" * 50, stop=["a"]), encoding))
    data[place % len(data)] = byte
    with contextlib.suppress(UnanswerableError, UnreadableError):
        read(bytes(data), f"application/{encoding}")
