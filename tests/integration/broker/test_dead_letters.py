"""DEAD on a real broker: letters are read one at a time, found by number or request, and removed."""

import msgspec
import pytest

from broker.connection import Connection
from broker.dead_letters import DeadLetters
from broker.publisher import Publisher
from broker.topology import Topology
from schemas.codec import encode
from schemas.control import DeadLetter
from schemas.faults import RequestFault
from tests.unit.broker.letters import request_letter, ticket_letter


async def bury(connection: Connection, letter: DeadLetter, model: str = "m") -> int:
    return await Publisher(connection).publish(f"hr.dead.{model}", encode(letter))


async def test_letters_are_read_found_and_removed(connection: Connection, topology: Topology) -> None:
    """In their order; by number, key or id; what is gone is gone, and removing it again is no error."""
    letters = DeadLetters(connection)
    assert [each async for each in letters.each()] == []
    first = await bury(connection, ticket_letter())
    second = await bury(connection, request_letter(), model="other")
    await Publisher(connection).publish("hr.dead.m", b"\xc1 no letter")
    found = [each async for each in letters.each()]
    assert [(each.sequence, each.model, each.key) for each in found] == [
        (first, "m", "acme.r1"),
        (second, "other", "acme.r2"),
        (3, "m", ""),
    ]
    assert "cannot be read" in found[2].letter.reason
    for name in (str(second), "acme.r2", "r2"):
        assert (await letters.find(name)).letter == request_letter()
    await letters.remove(second)
    await letters.remove(second)
    with pytest.raises(RequestFault, match="no letter of 'r2'"):
        await letters.find("r2")


async def test_several_letters_of_one_request(connection: Connection, topology: Topology) -> None:
    """Two choices of it, or two tenants with the same id: the numbers are said. A number of an id is an id too."""
    letters = DeadLetters(connection)
    await bury(connection, ticket_letter())
    await bury(connection, msgspec.structs.replace(ticket_letter(), choice=3))
    await bury(connection, msgspec.structs.replace(ticket_letter(), key="acme.1700000000"))
    with pytest.raises(RequestFault, match=r"several letters .*: 1, 2"):
        await letters.find("r1")
    assert (await letters.find("1700000000")).sequence == 3
    assert (await letters.find("2")).letter.choice == 3
    for wrong in ("0", "99999999999999999999999", "²", "-1", ""):
        with pytest.raises(RequestFault, match="no letter"):
            await letters.find(wrong)


async def test_a_letter_as_large_as_they_come(connection: Connection, topology: Topology) -> None:
    """A letter that just fits the broker is read whole."""
    large = msgspec.structs.replace(ticket_letter(), payload=bytes(connection.max_payload - 1024))
    await bury(connection, large)
    assert (await DeadLetters(connection).find("1")).letter == large
