"""Cancels reach everybody who watches: those put before, those put later, those put around a restart."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from broker import cancels, subjects
from broker.cancels import Cancels, put_cancel
from broker.connection import Connection, NotSendable
from broker.publisher import Publisher
from broker.server import EmbeddedServer
from schemas.control import Cancel

pytestmark = pytest.mark.usefixtures("topology")


@asynccontextmanager
async def watching(connection: Connection) -> AsyncGenerator[tuple[Cancels, "asyncio.Queue[tuple[str, Cancel]]"]]:
    """Cancels, and what they report."""
    got: asyncio.Queue[tuple[str, Cancel]] = asyncio.Queue()

    async def on_cancel(key: str, cancel: Cancel) -> None:
        if key == "acme.trouble":
            raise ValueError("this one's handler fails")
        got.put_nowait((key, cancel))

    cancelled = Cancels(connection)
    await cancelled.start(on_cancel)
    try:
        yield cancelled, got
    finally:
        await cancelled.stop()


async def test_existing_cancels_come_before_start_returns(connection: Connection) -> None:
    """A stage that starts knows of every cancel that still counts before it takes its first message."""
    await put_cancel(connection, "acme.1", Cancel("s1"))
    await put_cancel(connection, "acme.2", Cancel("s2", "json"))
    async with watching(connection) as (cancelled, got):
        assert [got.get_nowait(), got.get_nowait()] == [("acme.1", Cancel("s1")), ("acme.2", Cancel("s2", "json"))]
        assert "acme.1" in cancelled
        assert "acme.3" not in cancelled
        await put_cancel(connection, "acme.3", Cancel("s3"))
        assert await asyncio.wait_for(got.get(), 10) == ("acme.3", Cancel("s3"))
        assert "acme.3" in cancelled


async def test_cancels_after_a_restart_of_the_broker_arrive(server: EmbeddedServer, connection: Connection) -> None:
    """The watch goes on by itself after the broker was killed and started again, and repeats nothing."""
    async with watching(connection) as (_, got):
        await put_cancel(connection, "acme.1", Cancel("s1"))
        await asyncio.wait_for(got.get(), 10)
        await server.kill()
        await server.restart()
        await connection.wait_connected()
        await put_cancel(connection, "acme.2", Cancel("s2"))
        assert (await asyncio.wait_for(got.get(), 10))[0] == "acme.2"


async def test_one_bad_cancel_costs_no_other(connection: Connection) -> None:
    """Bytes that are no cancel, a deleted key and a handler that fails: the next cancel arrives as ever."""
    async with watching(connection) as (_, got):
        await Publisher(connection).publish(f"$KV.{subjects.CANCELLED_BUCKET}.acme.bad", b"\xff")
        await put_cancel(connection, "acme.trouble", Cancel("s"))
        await connection.request(f"$KV.{subjects.CANCELLED_BUCKET}.acme.gone", b"", 1, headers={"KV-Operation": "DEL"})
        await put_cancel(connection, "acme.1", Cancel("s1"))
        assert (await asyncio.wait_for(got.get(), 10))[0] == "acme.1"


async def test_a_key_that_is_none_is_refused(connection: Connection) -> None:
    """Keys are two ids; anything else would be a wildcard or a subject of its own."""
    with pytest.raises(NotSendable):
        await put_cancel(connection, "acme.*", Cancel("s"))


async def test_memory_is_bounded(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest keys are remembered."""
    monkeypatch.setattr(cancels, "REMEMBERED", 2)
    async with watching(connection) as (cancelled, got):
        for number in range(3):
            await put_cancel(connection, f"acme.{number}", Cancel("s"))
            await asyncio.wait_for(got.get(), 10)
        assert [f"acme.{number}" in cancelled for number in range(3)] == [False, True, True]
