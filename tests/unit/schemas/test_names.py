"""A message whose names could not be used in a subject is refused by the reader, with the field."""

from typing import Any

import msgspec
import pytest

from schemas.codec import WireError, decode
from schemas.control import Cancel
from schemas.grant import GrantItem
from schemas.journal import JournalMessage
from schemas.ticket import Ticket

FAULT = {"code": "internal", "message": "x"}
END = {"key": "t.r", "choice": 0, "session": "s", "fault": FAULT}
OPEN = {"key": "t.r", "choice": 0, "model": "m", "session": "s", "sequence": 1, "ack": "$JS.ACK.a", "fresh": True}
TOKENS: dict[str, Any] = {"key": "t.r", "choice": 0, "attempt": 1, "offset": 0, "ids": []}
TICKET = {
    "tenant": "t",
    "request": "r",
    "choice": 0,
    "session": "s",
    "model": "m",
    "prompt": b"1234",
    "sampling": {"max_tokens": 1},
    "partition": 0,
    "deadline_ms": 1,
}


@pytest.mark.parametrize("session", ["", "a b", "a\r\nb", "*", ">", "é", "a.b", "x" * 65, "a" * 5000, "s\n"])
def test_a_cancel(session: str) -> None:
    """Every client may write cancels, and every stage reads them."""
    with pytest.raises(WireError) as raised:
        decode(Cancel, msgspec.msgpack.encode({"v": 1, "session": session}))
    assert raised.value.field == "session"


@pytest.mark.parametrize(
    ("field", "entry"),
    [
        ("ends[0].key", {"ends": [{**END, "key": ""}]}),
        ("ends[0].session", {"ends": [{**END, "session": "a b"}]}),
        ("ends[0].ack", {"ends": [{**END, "ack": "a b"}]}),
        ("opens[0].choice", {"opens": [{**OPEN, "choice": -1}]}),
        ("opens[0].sequence", {"opens": [{**OPEN, "sequence": -5}]}),
        ("opens[0].worker", {"opens": [{**OPEN, "worker": "a.>"}]}),
        ("opens[0].reply", {"opens": [{**OPEN, "reply": "a.*"}]}),
        ("tokens[0].offset", {"tokens": [{**TOKENS, "offset": -1}]}),
        ("released[0].key", {"released": [{"key": "t.r.x", "choice": 0, "attempt": 1}]}),
        ("origin", {"origin": "a b"}),
    ],
)
def test_a_journal_entry(field: str, entry: dict[str, Any]) -> None:
    """What the owner of a partition builds subjects and lookups from."""
    with pytest.raises(WireError) as raised:
        decode(JournalMessage, msgspec.msgpack.encode({"v": 1, "origin": "w", **entry}))
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [("tenant", "a.b"), ("request", "*"), ("session", " "), ("model", ""), ("choice", -1), ("partition", -1)],
)
def test_a_ticket(field: str, value: object) -> None:
    """What schedulers and workers build subjects from."""
    with pytest.raises(WireError) as raised:
        decode(Ticket, msgspec.msgpack.encode({**TICKET, field: value}))
    assert raised.value.field == field


def test_a_prompt_of_a_wrong_length() -> None:
    """A prompt that is no whole number of ids is refused where the ticket is read, not where it runs."""
    with pytest.raises(WireError, match="u32"):
        decode(Ticket, msgspec.msgpack.encode({**TICKET, "prompt": b"123"}))


def test_a_grant() -> None:
    """The worker publishes on the ack subject of a grant."""
    item = {"ticket": {"v": 1, **TICKET}, "attempt": 1, "ack": "$JS.>", "sequence": 1, "stored_at": 0.0}
    with pytest.raises(WireError) as raised:
        decode(GrantItem, msgspec.msgpack.encode(item))
    assert raised.value.field == "ack"
