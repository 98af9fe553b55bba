"""Pieces of an open stream that go out while the broker is read: over a real connection, in order, or not at all."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Any

import h11
import pytest
import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.chunk import Chunk
from stages.edge.http.departures import present
from stages.edge.http.errors import ClientGone
from stages.edge.http.event_stream import EventStream
from stages.edge.http.line import Line, line_of
from stages.edge.http.listening import configure
from stages.edge.http.shortcut import Shortcut
from stages.edge.settings import EdgeSettings
from tests.unit.edge.wire import PATIENCE_S, Wire, scope

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@contextlib.asynccontextmanager
async def connected(app: ASGIApp) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client of the edge's HTTP server, with small buffers."""
    config = configure(app, EdgeSettings())
    config.load()
    state = uvicorn.Server(config).server_state
    make: Any = config.http_protocol_class
    server = await asyncio.get_running_loop().create_server(lambda: make(config, state, {}), "127.0.0.1", 0)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, server.sockets[0].getsockname())
    reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=PATIENCE_S)


class Told:
    """An app that streams what it is told: by its generator, or by the shortcut while that waits."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        self.shortcut = Shortcut(lambda chunk: chunk.text.encode())
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await EventStream(self._told(), keep_alive_s=60, shortcut=self.shortcut)(scope, receive, send)
        finally:
            self.ended.set()

    def take(self, text: str) -> bool:
        return self.shortcut.take(Chunk(0, text, [1], 0, 0))

    async def _told(self) -> AsyncGenerator[bytes, None]:
        while event := await self.events.get():
            yield event


async def body_of(reader: asyncio.StreamReader, until: bytes = b"") -> bytes:
    """As a strict reader of HTTP sees it, to its end or until it holds that."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    body = b""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                client.receive_data(await reader.read(4096))
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            if isinstance(event, h11.EndOfMessage) or (until and until in body):
                return body


async def test_pieces_go_out_between_events_in_their_order() -> None:
    """Not before the headers are out, nor once it has ended; an empty one would end the body."""
    app = Told()
    async with connected(app) as (reader, writer):
        assert not app.take("too early")
        writer.write(GET)
        reading = asyncio.create_task(body_of(reader))
        app.events.put_nowait(b"first ")
        await asyncio.sleep(0.05)
        assert app.take("second ")
        assert app.take("third ")
        assert not app.take("")
        app.events.put_nowait(b"fourth")
        app.events.put_nowait(b"")
        assert await reading == b"first second third fourth"
        await asyncio.wait_for(app.ended.wait(), PATIENCE_S)
        assert not app.take("too late")


async def test_a_slow_reader_is_not_written_to_without_end() -> None:
    """What does not fit is refused, so that it waits where it is bounded; a reader that reads again gets on."""
    app = Told()
    piece = "x" * 50_000
    async with connected(app) as (reader, writer):
        writer.write(GET)
        app.events.put_nowait(b"first")
        await asyncio.sleep(0.05)
        taken = 0
        while app.take(piece):
            taken += 1
            assert taken < 1000
            await asyncio.sleep(0)
        app.events.put_nowait(b"last")
        app.events.put_nowait(b"")
        assert await body_of(reader) == b"first" + piece.encode() * taken + b"last"


async def test_a_client_that_is_gone_gets_nothing() -> None:
    """And its stream ends, without a task that waits for that."""
    app = Told()
    async with connected(app) as (reader, writer):
        writer.write(GET)
        app.events.put_nowait(b"first")
        assert await body_of(reader, until=b"first") == b"first"
        tasks = len(asyncio.all_tasks())
        writer.transport.abort()
        await asyncio.wait_for(app.ended.wait(), PATIENCE_S)
        assert not app.take("second")
        assert tasks == 2  # the test, and the request


async def test_without_a_line_nothing_is_taken() -> None:
    """Under another server all goes the long way."""
    app, wire = Told(), Wire()
    running = asyncio.create_task(wire.run(app))
    app.events.put_nowait(b"first")
    await wire.until(2)
    assert line_of(scope()) is None
    assert not app.take("second")
    app.events.put_nowait(b"")
    await running
    assert wire.body == b"first"


async def test_nothing_overtakes_a_write_that_waits() -> None:
    """An event is held up in the server: a piece behind it is refused."""
    app, wire = Told(), Wire()

    class Eager(Line):
        def write(self, data: bytes) -> bool:
            raise AssertionError(data)

    def with_line(scope: Scope, receive: Receive, send: Send) -> Any:
        Eager(None, None).put_in(scope)  # pyright: ignore[reportArgumentType]
        return app(scope, receive, send)

    wire.open.clear()
    app.events.put_nowait(b"first")
    running = asyncio.create_task(wire.run(with_line))
    async with asyncio.timeout(PATIENCE_S):
        await wire.blocked.wait()
    assert not app.take("second")
    wire.open.set()
    app.events.put_nowait(b"")
    await running


@pytest.mark.parametrize("before", [True, False])
async def test_who_leaves_is_known_by_the_line(before: bool) -> None:
    """Gone before anything begins, or in the middle: the work is cancelled and the reason is that."""
    gone = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        line = line_of(scope)
        if before:
            await Request(scope, receive).is_disconnected()
            writer.transport.abort()
            await asyncio.sleep(0.05)
        else:
            asyncio.get_running_loop().call_later(0.02, writer.transport.abort)
        with pytest.raises(ClientGone):
            async with present(receive, line):
                await asyncio.sleep(PATIENCE_S)
        gone.set()

    async with connected(app) as (_, writer):
        writer.write(GET)
        await asyncio.wait_for(gone.wait(), PATIENCE_S)
