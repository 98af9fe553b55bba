"""A link passes everything on, until it is frozen or severed; then nothing, until it is restored."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from load.link import Link


@pytest_asyncio.fixture
async def link() -> AsyncGenerator[Link]:
    """A link to a server that sends back what it gets."""

    serving: set[asyncio.Task[Any] | None] = set()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made = Link("127.0.0.1", server.sockets[0].getsockname()[1])
    await made.start()
    yield made
    await made.close()
    server.close()
    async with asyncio.timeout(30):
        await asyncio.gather(*(task for task in serving if task))


async def test_everything_passes(link: Link) -> None:
    """Both ways, more than any buffer holds, in order."""
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    sent = bytes(range(256)) * 20_000
    writer.write(sent)
    async with asyncio.timeout(30):
        assert await reader.readexactly(len(sent)) == sent
    assert link.connections == 1
    writer.close()


async def test_frozen(link: Link) -> None:
    """Nothing passes, the connection stays, and what was under way arrives afterwards."""
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(b"one")
    async with asyncio.timeout(30):
        assert await reader.readexactly(3) == b"one"
    link.freeze()
    writer.write(b"two")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await reader.readexactly(3)
    await link.restore()
    async with asyncio.timeout(30):
        assert await reader.readexactly(3) == b"two"
    writer.close()


async def test_severed(link: Link) -> None:
    """Connections end, new ones are refused, and afterwards the same port serves again."""
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(b"one")
    async with asyncio.timeout(30):
        await reader.readexactly(3)
        link.sever()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", link.port)
    await link.restore()
    again, writer_again = await asyncio.open_connection("127.0.0.1", link.port)
    writer_again.write(b"two")
    async with asyncio.timeout(30):
        assert await again.readexactly(3) == b"two"
    writer.close()
    writer_again.close()
