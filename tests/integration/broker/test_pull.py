"""The pull loop when things go wrong around it: restarts, silence, and what the server says instead of messages."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from broker import pull, subjects
from broker.connection import Connection, Inbound, Unavailable
from broker.jetstream_api import ApiError
from broker.publisher import Publisher
from broker.pull import PullLoop
from broker.server import EmbeddedServer
from broker.topology import depths
from broker.work_queue import confirm_ack
from tests.integration.broker.raw_client import publish_at_standstill, send_status

SUBJECT = subjects.request("acme", "m")

pytestmark = pytest.mark.usefixtures("topology")


async def attach() -> str:
    """The consumer is there."""
    return subjects.PREPROCESS_CONSUMER


@asynccontextmanager
async def pulling(connection: Connection, limit: int = 4) -> AsyncGenerator[PullLoop]:
    """A loop on REQUESTS, ended hard."""
    loop = PullLoop(connection, subjects.REQUESTS, attach, limit=limit)
    loop.start()
    try:
        yield loop
    finally:
        await loop.cut()


async def publish(connection: Connection, data: bytes = b"x") -> None:
    """Stores a request, as soon as the broker takes it."""
    await Publisher(connection).publish_patiently(SUBJECT, data, message_id=str(time.monotonic_ns()))


async def take(loop: PullLoop, connection: Connection, within_s: float = 15.0) -> list[Inbound]:
    """The next messages, acknowledged and released."""
    messages = await asyncio.wait_for(loop.take(), within_s)
    for message in messages:
        await confirm_ack(connection, message.reply)
    loop.release(len(messages))
    return messages


async def until(condition: Callable[[], bool], within_s: float = 15.0) -> None:
    """Returns once the condition holds."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what it looks at has no event
            await asyncio.sleep(0.01)


async def test_what_is_on_its_way_at_a_stop_is_given_back(broker_url: str, connection: Connection) -> None:
    """D4: a message that the server has sent and nobody has read yet is not thrown away with the inbox."""
    async with pulling(connection) as loop:
        await publish(connection, b"first")
        await take(loop, connection)
        publish_at_standstill(broker_url, SUBJECT, b"on its way")
        time.sleep(0.05)  # noqa: ASYNC251 - the server sends it to us meanwhile, and we do not read
        assert [message.data for message in await loop.stop()] == [b"on its way"]


@pytest.mark.parametrize("down_s", [0.0, 1.5])
async def test_the_loop_survives_a_killed_broker(server: EmbeddedServer, connection: Connection, down_s: float) -> None:
    """D6: SIGKILL of the server and a new one on the same store: the loop pulls on by itself, not ready meanwhile."""
    async with pulling(connection) as loop:
        await publish(connection, b"before")
        assert [m.data for m in await take(loop, connection)] == [b"before"]
        await server.kill()
        await until(lambda: not loop.attached)
        await asyncio.sleep(down_s)
        await server.restart()
        await publish(connection, b"after")
        assert [m.data for m in await take(loop, connection)] == [b"after"]
        await until(lambda: loop.attached)


async def test_a_lost_connection_leaves_no_pull_behind(connection: Connection) -> None:
    """After a reconnect to the same server, pulls from before do not add up with new ones: the limit still holds."""
    async with pulling(connection, limit=3) as loop:
        await until(lambda: loop.attached)
        for reconnects in range(1, 4):
            await connection.client.force_reconnect()
            await until(lambda: connection.reconnects == reconnects)  # noqa: B023 - awaited in the same round
        await until(lambda: loop.attached)
        for _ in range(8):
            await publish(connection)
        await asyncio.sleep(0.1)
        assert (await depths(connection)).consumers["preprocess"].ack_pending == 3


async def test_a_loop_that_starts_before_the_broker_works_once_it_is_there(
    server: EmbeddedServer, connection: Connection
) -> None:
    """Started while the broker is away, it waits; nothing has to be started again."""
    await server.kill()
    await until(lambda: not connection.connected)
    async with pulling(connection) as loop:
        await asyncio.sleep(0.2)
        assert not loop.attached
        await server.restart()
        await publish(connection)
        assert len(await take(loop, connection)) == 1


async def test_stopping_while_the_broker_is_away_is_quick(server: EmbeddedServer, connection: Connection) -> None:
    """A process can end while there is no broker: the stop waits for no answer that cannot come."""
    async with pulling(connection) as loop:
        await publish(connection)
        await until(lambda: len(loop.waiting) == 1)
        await server.kill()
        await until(lambda: not connection.connected)
        async with asyncio.timeout(10):
            assert len(await loop.stop()) == 1


async def test_silence_is_answered_by_a_new_pull(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """D23: a pull of which the server knows nothing (its leader changed): no heartbeat comes, so it is made again."""
    monkeypatch.setattr(pull, "HEARTBEAT_S", 0.1)
    lost: list[str] = []
    publish_really = connection.publish

    async def lose_the_first(subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None) -> None:
        if "MSG.NEXT" in subject and not lost:
            lost.append(subject)
        else:
            await publish_really(subject, data, reply, headers)

    monkeypatch.setattr(connection, "publish", lose_the_first)
    async with pulling(connection) as loop:
        await publish(connection)
        started = time.monotonic()
        assert len(await take(loop, connection)) == 1
        assert lost
        assert 0.25 < time.monotonic() - started < 10


@pytest.mark.parametrize(
    "status", ["409 Leadership Change", "409 Server Shutdown", "409 Exceeded MaxWaiting", "503", "400 Bad Request"]
)
async def test_odd_statuses_make_a_new_inbox(
    broker_url: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """D23: whatever the server says about a pull, the loop looks at its consumer and pulls again, at once."""
    attached: list[str] = []

    async def count() -> str:
        attached.append(status)
        return subjects.PREPROCESS_CONSUMER

    loop = PullLoop(connection, subjects.REQUESTS, count, limit=4)
    loop.start()
    await until(lambda: loop.attached)
    assert loop._inbox is not None
    await send_status(broker_url, f"{loop._inbox.subject}.1", status)
    await until(lambda: len(attached) == 2)
    await publish(connection)
    assert len(await take(loop, connection)) == 1
    assert await loop.stop() == []


async def test_an_expired_pull_is_replaced(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulls end after a while by themselves (408); there is always another one, and never more than there is room."""
    monkeypatch.setattr(pull, "EXPIRES_S", 0.2)
    monkeypatch.setattr(pull, "HEARTBEAT_S", 0.1)
    async with pulling(connection, limit=8) as loop:
        for _ in range(3):
            await asyncio.sleep(0.25)
            assert loop._outstanding == 8
        assert loop._pulls > 3
        assert (await depths(connection)).consumers["preprocess"].waiting_pulls == 1
        await publish(connection)
        assert len(await take(loop, connection, within_s=0.1)) == 1


async def test_no_more_is_asked_for_than_there_is_room(connection: Connection) -> None:
    """At every moment: on the way + come + taken is at most the limit, through a flow with slow and quick handling."""
    async with pulling(connection, limit=8) as loop:
        for _ in range(16):
            await publish(connection)
        seen = 0
        while seen < 16:
            messages = await asyncio.wait_for(loop.take(), 10)
            assert loop._outstanding + len(loop.waiting) + loop._taken <= 8
            assert (await depths(connection)).consumers["preprocess"].ack_pending <= 8
            for message in messages:
                await confirm_ack(connection, message.reply)
                loop.release(1)
                assert loop._outstanding + len(loop.waiting) + loop._taken <= 8
            seen += len(messages)


async def test_many_small_pulls_become_few(connection: Connection) -> None:
    """Slots that are freed one by one do not leave as many pull requests (and heartbeats) behind."""
    async with pulling(connection, limit=16) as loop:
        for _ in range(16):
            await publish(connection)
        taken = 0
        while taken < 16:
            taken += len(await asyncio.wait_for(loop.take(), 10))
        for _ in range(16):
            loop.release(1)
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.05)
        assert loop._outstanding > 8
        assert (await depths(connection)).consumers["preprocess"].waiting_pulls <= 5


@pytest.mark.parametrize("error", [ApiError("STREAM.INFO.X", 404, 10059, "stream not found"), KeyError("a bug")])
async def test_what_ends_the_loop_reaches_the_reader(connection: Connection, error: Exception) -> None:
    """An error that does not pass by itself is raised where messages are awaited, also the second time."""

    async def refuse() -> str:
        raise error

    loop = PullLoop(connection, subjects.REQUESTS, refuse, limit=4)
    loop.start()
    for _ in range(2):
        with pytest.raises(type(error)):
            await asyncio.wait_for(loop.take(), 10)
    assert await loop.stop() == []


async def test_trouble_that_passes_is_waited_for(connection: Connection) -> None:
    """While JetStream is not there yet the loop tries again by itself."""
    answers = iter([Unavailable("no leader"), Unavailable("no leader"), None])

    async def late() -> str:
        error = next(answers)
        if error is not None:
            raise error
        return subjects.PREPROCESS_CONSUMER

    loop = PullLoop(connection, subjects.REQUESTS, late, limit=4)
    loop.start()
    await publish(connection)
    assert len(await take(loop, connection)) == 1
    await loop.stop()
