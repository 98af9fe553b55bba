"""What a dead letter can be made of again, and when not."""

import msgspec
import pytest

from broker import subjects
from broker.dead_letters import retry_of
from schemas.codec import Encoding, encode
from schemas.control import DeadLetter
from schemas.faults import RequestFault
from schemas.request import Request
from schemas.ticket import StageTime, Ticket
from tests.unit.broker.letters import REQUEST, TICKET, request_letter, stored, ticket_letter


def test_a_ticket_becomes_a_request_of_one_choice() -> None:
    """Same prompt, same sampling; another id, partition and session, and nothing of its first life counts."""
    again = retry_of(stored(ticket_letter()), "new", "mine", 8)
    assert (again.tenant, again.model, again.subject, again.message_id) == (
        "acme",
        "m",
        "hr.ticket.m.acme",
        "acme.new.0",
    )
    assert isinstance(again.message, Ticket)
    assert again.message == msgspec.structs.replace(
        TICKET,
        request="new",
        session="mine",
        partition=subjects.partition_of("acme.new", 8),
        choice=0,
        choices=1,
        received_at=0.0,
        preprocess=StageTime(0.0, 0.0),
        trace="",
    )


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_a_request_goes_again_whole(encoding: Encoding) -> None:
    """All its choices, in either encoding, under its own tenant and model."""
    again = retry_of(stored(request_letter(encoding)), "new", "mine", 8)
    assert (again.tenant, again.subject, again.message_id) == ("acme", "hr.request.acme.m", "acme.new")
    assert again.message == msgspec.structs.replace(REQUEST, id="new", session="mine")
    assert isinstance(again.message, Request)


@pytest.mark.parametrize(
    ("letter", "why"),
    [
        (request_letter(cut=9), "cut when it was set aside"),
        (request_letter("msgpack", cut=1), "cut when it was set aside"),
        (msgspec.structs.replace(ticket_letter(), payload=b""), "not kept with the letter"),
        (msgspec.structs.replace(ticket_letter(), payload=b"\xc1"), "unreadable"),
        (msgspec.structs.replace(ticket_letter(), payload=encode(REQUEST)), "unreadable"),
        (msgspec.structs.replace(ticket_letter(), subject="hr.ticket.m.a$"), "no subject of a request or a ticket"),
        (DeadLetter(subject="", reason="", payload=b"x"), "no subject of a request or a ticket"),
        (msgspec.structs.replace(request_letter(), content_type="image/png"), "image/png"),
    ],
)
def test_what_cannot_be_sent_again(letter: DeadLetter, why: str) -> None:
    """It is said, with the reason and the letter's number; nothing is sent."""
    with pytest.raises(RequestFault, match=r"letter 5 cannot be sent again") as raised:
        retry_of(stored(letter), "new", "mine", 8)
    assert why in raised.value.message


@pytest.mark.parametrize(
    ("letter", "key"),
    [
        (ticket_letter(), "acme.r1"),
        (msgspec.structs.replace(ticket_letter(), key=""), "acme.r1"),
        (request_letter(), "acme.r2"),
        (request_letter(cut=9), ""),
    ],
)
def test_who_it_was(letter: DeadLetter, key: str) -> None:
    """The letter's own word, else that of what it holds; a person may leave the tenant out."""
    found = stored(letter)
    assert found.key == key
    assert found.named(key) == bool(key)
    assert found.named(key.partition(".")[2]) == bool(key)
    assert not found.named("other")
