"""Every message survives the wire; whatever else arrives raises one documented error."""

import typing
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.backlog import Backlog, Prediction, Rate
from schemas.codec import Encoding, WireError, decode, encode, encoding_of, pack_ids, unpack_ids
from schemas.control import Cancel, DeadLetter, Drop, Lease, Seconds, WorkerStatus
from schemas.grant import Grant, GrantReply
from schemas.journal import JournalMessage, OpenReply
from schemas.kv_events import KvEvents
from schemas.model import ModelCard
from schemas.names import Count, Id, Key, OptionalId, ReplySubject
from schemas.request import Request
from schemas.result import Result
from schemas.ticket import Ticket

MESSAGES: list[type[msgspec.Struct]] = [
    Request, Ticket, Grant, GrantReply, JournalMessage, OpenReply, Result,
    WorkerStatus, Drop, Cancel, Lease, DeadLetter, ModelCard, Backlog, KvEvents,
]  # fmt: skip

NAME = st.text("azAZ09_-", min_size=1, max_size=64)

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    bool: st.booleans(),
    bytes: st.binary(max_size=20).map(lambda data: data[: len(data) // 8 * 8]),
    Id: NAME,
    OptionalId: NAME | st.just(""),
    Key: st.tuples(NAME, NAME).map(".".join),
    ReplySubject: st.sampled_from(["", "$JS.ACK.TICKETS.schedule_m.1.2.3.4.0", "_INBOX.a.b"]),
    Count: st.integers(0, 2**63 - 1),
    Seconds: st.floats(0, 3600),
    Rate: st.floats(0, 1e12),
    Prediction: st.floats(-1, 1e12),
    type(None): st.none(),
    Any: st.none() | st.booleans() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
}


def anything_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return st.fixed_dictionaries({f.name: anything_of(f.type) for f in fields}).map(lambda made: kind(**made))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is list:
        return st.lists(anything_of(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(anything_of(arguments[0]), anything_of(arguments[1]), max_size=3)
    return st.one_of([anything_of(argument) for argument in arguments])


@pytest.mark.parametrize("kind", MESSAGES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_round_trip(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    """What is encoded is decoded to the same message, in msgpack and in JSON."""
    message = data.draw(anything_of(kind))
    for encoding in typing.get_args(Encoding):
        assert decode(kind, encode(message, encoding), encoding) == message


@pytest.mark.parametrize("kind", MESSAGES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_truncated(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    """A message that was cut off anywhere raises `WireError`."""
    wire = encode(data.draw(anything_of(kind)))
    cut = data.draw(st.integers(0, len(wire) - 1))
    with pytest.raises(WireError):
        decode(kind, wire[:cut])


@pytest.mark.parametrize("kind", MESSAGES)
@given(noise=st.binary(max_size=200))
def test_random_bytes(kind: type[msgspec.Struct], noise: bytes) -> None:
    """Random bytes raise `WireError` and nothing else, as either encoding."""
    for encoding in typing.get_args(Encoding):
        with pytest.raises(WireError):
            decode(kind, noise, encoding)


@pytest.mark.parametrize("kind", MESSAGES)
def test_unknown_version(kind: type[msgspec.Struct]) -> None:
    """A version that this reader does not know is refused by name, before its fields are looked at."""
    with pytest.raises(WireError) as raised:
        decode(kind, msgspec.msgpack.encode({"v": 99, "unheard": 1}))
    assert raised.value.field == "v"


def test_deeply_nested() -> None:
    """Nesting that would overflow the stack raises `WireError`."""
    cases: list[tuple[Encoding, bytes]] = [
        ("msgpack", b"\x82\xa2id\xa1x\xa5tools" + b"\x91" * 100_000),
        ("json", b'{"tools":' + b"[" * 100_000),
    ]
    for encoding, wire in cases:
        with pytest.raises(WireError):
            decode(Request, wire, encoding)


def test_unknown_fields_are_ignored() -> None:
    """A newer writer may add fields."""
    wire = msgspec.json.encode({"id": "a", "session": "s", "prompt": "hi", "later": {"x": 1}})
    assert decode(Request, wire, "json") == Request(id="a", session="s", prompt="hi")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"id": 3, "session": "s"}', "id"),
        (b'{"id": "a", "session": "s", "sampling": {"temperature": "hot"}}', "sampling.temperature"),
        (b'{"id": "a", "session": "s", "messages": {}}', "messages"),
        (b'{"id": "a", "session": "s", "messages": [{"role": "user", "content": 7}]}', "messages[0].content"),
        (b'{"id": "a", "session": "s", "messages": [{"content": "x"}]}', "messages[0]"),
        (b'{"id": "a", "session": "s", "prompt": [1, "x"]}', "prompt[1]"),
    ],
)
def test_the_error_names_the_field(body: bytes, field: str) -> None:
    """A wrong type is reported with the dotted path of its field."""
    with pytest.raises(WireError) as raised:
        decode(Request, body, "json")
    assert raised.value.field == field


def test_lone_surrogate() -> None:
    """Half a character is refused on both sides; a whole pair is one character (B11)."""
    with pytest.raises(WireError):
        decode(Request, b'{"id": "a", "session": "s", "prompt": "\\ud83d"}', "json")
    for encoding in typing.get_args(Encoding):
        with pytest.raises(WireError):
            encode(Request(id="a", session="s", prompt="\ud83d"), encoding)
    whole = decode(Request, b'{"id": "a", "session": "s", "prompt": "\\ud83d\\ude00"}', "json")
    assert whole.prompt == "\U0001f600"


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_packed_ids(ids: list[int]) -> None:
    """Token ids take four little-endian bytes each and come back as they were."""
    packed = pack_ids(ids)
    assert unpack_ids(packed) == ids
    assert packed == b"".join(token.to_bytes(4, "little") for token in ids)


def test_packed_ids_of_a_wrong_length() -> None:
    """Bytes that are no whole number of ids raise `WireError`."""
    with pytest.raises(WireError):
        unpack_ids(b"\x01\x02\x03")


def test_content_types() -> None:
    """msgpack without a header, JSON with its parameters; anything else is refused by name."""
    assert encoding_of("") == "msgpack"
    assert encoding_of("application/json; charset=utf-8") == "json"
    with pytest.raises(WireError, match="text/plain"):
        encoding_of("text/plain")
