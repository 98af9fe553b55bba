"""What the server sends, cut anywhere: every message once, in order, to its handler or the library's own way."""

# pyright: reportUnknownMemberType=false
# nats-py's own annotations leave type arguments open.

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.errors import BadSubjectError, ProtocolError

from broker.direct_client import DirectClient, headers_of

DIRECT, OTHER = 7, 8
NONE: dict[str, str] = {}

Message = tuple[int, str, bytes, str, dict[str, str]]
"""Subscription, subject, data, reply subject, headers."""

words = st.text(st.sampled_from("abcXYZ019._-$"), min_size=1, max_size=12)
messages = st.tuples(
    st.sampled_from([DIRECT, OTHER]),
    words,
    st.one_of(st.binary(max_size=40), st.sampled_from([b"\r\n", b"MSG a 7 1\r\nx\r\n", b"PING\r\n"])),
    st.one_of(st.just(""), words),
    st.dictionaries(st.sampled_from(["Content-Type", "Nats-Msg-Id"]), words, max_size=2),
)


def on_the_wire(message: Message) -> bytes:
    number, subject, data, reply, headers = message
    block = b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
    block = b"NATS/1.0\r\n" + block + b"\r\n" if headers else b""
    sizes = f"{len(block)} {len(block + data)}" if block else f"{len(data)}"
    words = ["HMSG" if block else "MSG", subject, str(number), *([reply] if reply else []), sizes]
    return " ".join(words).encode() + b"\r\n" + block + data + b"\r\n"


class Listening(DirectClient):
    """One subscription has a handler; what takes the library's way is noted too."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.pings = 0
        super().__init__()
        self._handlers[DIRECT] = lambda subject, data, reply, headers: self.got.append(
            (DIRECT, subject, data, reply, headers)
        )

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self.got.append((sid, subject.decode(), data, reply.decode(), headers_of(headers)))

    async def _process_ping(self) -> None:
        self.pings += 1


async def parsed(data: bytes, cuts: list[int]) -> Listening:
    client = Listening()
    places = sorted(cut % (len(data) + 1) for cut in cuts)
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        await client._ps.parse(data[begin:end])
    return client


@given(st.lists(messages, max_size=6), st.lists(st.integers(0, 2000), max_size=12))
async def test_every_message_once_and_in_order(said: list[Message], cuts: list[int]) -> None:
    """However the bytes are cut, with and without headers and reply subjects, a message's data never read as lines."""
    client = await parsed(b"".join(b"PING\r\n" + on_the_wire(message) for message in said), cuts)
    assert client.got == said
    assert client.pings == len(said)
    assert not client._ps.buf


@pytest.mark.parametrize("line", [b"MSG a\r\n", b"MSG a x 3\r\n", b"HMSG a 7 3\r\n", b"MSG a 7 many\r\n", b"NO\r\n"])
async def test_what_is_no_protocol_ends_the_connection(line: bytes) -> None:
    """As with the library's own parser: it connects again."""
    with pytest.raises(ProtocolError):
        await parsed(line + b"x" * 100 + b"\r\n", [])


async def test_a_new_connection_begins_with_nothing() -> None:
    """Half a message of the lost connection is no beginning of what comes over the next one."""
    client = await parsed(on_the_wire((DIRECT, "a", b"lost", "", NONE))[:-3], [])
    client._ps.reset()
    await client._ps.parse(on_the_wire((DIRECT, "a", b"whole", "", NONE)))
    assert [message[2] for message in client.got] == [b"whole"]


async def test_a_large_message_in_pieces() -> None:
    """A megabyte that comes in small reads."""
    large = (DIRECT, "a", b"x" * 1_000_000, "", NONE)
    client = await parsed(on_the_wire(large) * 2, list(range(0, 2_000_000, 30_000)))
    assert client.got == [large, large]


@pytest.mark.parametrize(
    "block",
    [
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0 404 No Messages\r\n\r\n",
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1016\r\nNats-Last-Stream: 1024\r\n\r\n",
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n",
        b"NATS/1.0\r\nContent-Type: application/json\r\nNats-Msg-Id:a.b\r\n\r\n",
        "NATS/1.0\r\nname: ž\r\n\r\n".encode(),
    ],
)
async def test_headers_are_those_of_the_library(block: bytes) -> None:
    """Status, description and names."""
    assert headers_of(block) == await Client()._process_headers(block)


async def test_a_subject_that_is_no_text_breaks_nothing() -> None:
    """Anybody may publish to one: the next message is read all the same."""
    data = b"MSG a.\xff 7 2\r\nno\r\n" + on_the_wire((DIRECT, "a.b", b"yes", "", NONE))
    assert [message[2] for message in (await parsed(data, [])).got] == [b"no", b"yes"]


async def test_a_handler_goes_with_its_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    """`listen` gives its messages to the handler from the first one on; after `unsubscribe` none comes."""
    client, got = DirectClient(), list[bytes]()

    async def sent(*_: Any, **__: Any) -> None:
        await client._ps.parse(on_the_wire((1, "a", b"first", "", NONE)))

    monkeypatch.setattr(client, "_send_subscribe", sent)
    monkeypatch.setattr(client, "_send_unsubscribe", sent)
    subscription = await client.listen("a", lambda subject, data, reply, headers: got.append(data))
    assert got == [b"first"]
    await subscription.unsubscribe()
    await client._ps.parse(on_the_wire((1, "a", b"late", "", NONE)))
    assert got == [b"first"]


async def test_a_subscription_that_failed_leaves_nothing() -> None:
    """A subject that cannot be costs the next subscription nothing."""
    client = DirectClient()
    with pytest.raises(BadSubjectError):
        await client.listen("a b", lambda subject, data, reply, headers: None)
    assert not client._handlers
