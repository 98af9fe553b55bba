"""Many publishes as one write: the broker sees the same messages as one by one, and nothing that nobody published."""

import asyncio

import pytest

from broker.burst import WRITE_BYTES, Burst, Message
from broker.connection import Connection, Inbound, NotSendable, Unavailable
from broker.server import EmbeddedServer

SUBJECT = "burst.a"


async def heard(connection: Connection) -> list[Inbound]:
    """What arrives from now on."""
    found: list[Inbound] = []
    await connection.listen("burst.>", found.append)
    await connection.prove_subscriptions()
    return found


async def test_all_arrive_in_their_order(connection: Connection) -> None:
    """With and without headers, empty and large ones, behind and before other publishes of the same connection."""
    found = await heard(connection)
    messages: list[Message] = [
        ("burst.a", b"1", {}),
        ("burst.b", b"", {"Content-Type": "application/json", "Nats-Msg-Id": "a.0.end"}),
        ("burst.a", b"\r\nPUB burst.c 1\r\nx\r\n", {}),
        *((f"burst.{number}", bytes(WRITE_BYTES // 3), {}) for number in range(7)),
        ("burst.a", b"", {}),
    ]
    await connection.publish(SUBJECT, b"first")
    await Burst(connection).publish(messages)
    await connection.publish(SUBJECT, b"last")
    await connection.prove_subscriptions()
    expected: list[Message] = [(SUBJECT, b"first", {}), *messages, (SUBJECT, b"last", {})]
    assert [(each.subject, each.data, each.headers) for each in found] == expected


async def test_bursts_of_two_tasks_do_not_mix(connection: Connection) -> None:
    """Each command arrives whole, also where bursts are too large for one write."""
    found = await heard(connection)
    burst = Burst(connection)
    messages: list[Message] = [(f"burst.{name}", name.encode() * (WRITE_BYTES // 2), {}) for name in "xyz"]
    await asyncio.gather(*(burst.publish([each] * 5) for each in messages))
    await connection.prove_subscriptions()
    for subject, data, _ in messages:
        assert [each.data for each in found if each.subject == subject] == [data] * 5


@pytest.mark.parametrize(
    "wrong",
    [
        ("burst.a b", b"", {}),
        ("burst.a\r\nPUB burst.c", b"", {}),
        ("burst..a", b"", {}),
        ("", b"", {}),
        ("burst.a", b"", {"Content-Type": "a\r\nX: 1"}),
        ("burst.a", b"", {"Nats-Msg-Id": "ø"}),
    ],
)
async def test_what_would_break_a_command_sends_nothing(connection: Connection, wrong: Message) -> None:
    """D28: no subject and no header ends its command early; nothing of such a burst goes out."""
    found = await heard(connection)
    burst = Burst(connection)
    with pytest.raises(NotSendable):
        await burst.publish([(SUBJECT, b"x", {}), wrong])
    await burst.publish([(SUBJECT, b"y", {})])
    await connection.prove_subscriptions()
    assert [each.data for each in found] == [b"y"]


async def test_without_a_connection_nothing_is_kept(server: EmbeddedServer, connection: Connection) -> None:
    """A burst is not sent some time later, when its owner has sent it again already."""
    found = await heard(connection)
    await server.kill()
    async with asyncio.timeout(10):
        while connection.connected:  # noqa: ASYNC110 - nothing tells of it sooner
            await asyncio.sleep(0.01)
        with pytest.raises(Unavailable):
            await Burst(connection).publish([(SUBJECT, b"x", {})])
        await server.restart()
        await connection.wait_connected()
        await connection.publish(SUBJECT, b"y")
        while not found:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.01)
    assert [each.data for each in found] == [b"y"]
