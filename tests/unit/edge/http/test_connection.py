"""What comes over a client's connection, byte by byte: heads without end, offers of other protocols, early ends."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from stages.edge.http.connection import MAX_HEAD_BYTES, MAX_PIPELINED
from stages.edge.http.listening import configure
from stages.edge.settings import EdgeSettings
from tests.unit.edge.wire import PATIENCE_S

H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
OK = b"HTTP/1.1 200 OK"


@dataclass
class App:
    """Answers with what it was sent; a request for /wait waits until its client is gone."""

    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    waits: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        if scope["path"] == "/wait":
            self.waits.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone.set()
        answer = f"{scope['method']} {scope['path']} ".encode() + body
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


@dataclass
class Client:
    """Of an edge's HTTP server in this process."""

    app: App
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *pieces: str) -> None:
        """One by one."""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self.writer.write(piece.encode())
                await self.writer.drain()

    async def answer(self, *pieces: str) -> bytes:
        """All that comes back until the server closes the connection."""
        await self.send(*pieces)
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""

    async def refusal(self, *pieces: str) -> tuple[int, str]:
        """Status and code of the error that comes back."""
        await self.send(*pieces)
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].split()[0])
            body = await self.reader.readexactly(length)
        assert b"connection: close" in head
        return int(head.split()[1]), json.loads(body)["error"]["code"]


@contextlib.asynccontextmanager
async def connected() -> AsyncGenerator[Client]:
    app = App()
    config = configure(app, EdgeSettings())
    config.load()
    server_state = uvicorn.Server(config).server_state
    make: Any = config.http_protocol_class
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: make(config, server_state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield Client(app, reader, writer)
    finally:
        writer.close()
        server.close()
        if server_state.tasks:
            await asyncio.wait(server_state.tasks, timeout=PATIENCE_S)


def post(body: str, headers: str = "", *, last: bool = True) -> str:
    close = "Connection: close\r\n" if last else ""
    return f"POST /x HTTP/1.1\r\nHost: x\r\n{close}{headers}Content-Length: {len(body)}\r\n\r\n{body}"


LARGE = {
    "one long header": [f"X: {'a' * MAX_HEAD_BYTES}\r\n\r\n"],
    "one header in pieces, without end": ["X: ", *["a" * 8192] * 9],
    "a header's name without end": ["a" * 8192] * 9,
    "many headers at once": ["X-Y: abcdefgh\r\n" * 8000 + "\r\n"],
    "many headers in pieces": ["X-Y: abcdefgh\r\n" * 500] * 20,
}


@pytest.mark.parametrize("pieces", LARGE.values(), ids=LARGE)
async def test_a_head_has_an_end(pieces: list[str]) -> None:
    """A head over the limit is a 431 in the envelope, however it is made up and cut; no request begins."""
    async with connected() as client:
        assert await client.refusal("GET / HTTP/1.1\r\n", *pieces) == (431, "too_large")
        assert not client.app.headers


async def test_a_path_has_an_end() -> None:
    """It is a part of the head."""
    async with connected() as client:
        assert await client.refusal(f"GET /{'a' * MAX_HEAD_BYTES} HTTP/1.1\r\n\r\n") == (431, "too_large")


async def test_trailers_have_an_end_and_are_no_headers() -> None:
    """Behind a body in chunks more headers may come: they are bounded too, and none reaches the request."""
    chunked = "POST /x HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n"
    async with connected() as client:
        assert (await client.answer(chunked, "X-Late: 1\r\n\r\n")).endswith(b"POST /x ab")
        assert "x-late" not in client.app.headers[0]
    async with connected() as client:
        assert await client.answer(chunked, "X-Late: ", *["a" * 8192] * 40) == b""
        assert not client.app.headers


async def test_large_bodies_and_many_requests_are_no_heads() -> None:
    """Only what is no body counts, and every request anew."""
    async with connected() as client:
        header = f"X: {'a' * (MAX_HEAD_BYTES // 2)}\r\n"
        requests = [post("b" * 50_000, header, last=number == 3) for number in range(4)]
        answer = await client.answer(*requests)
    assert answer.count(OK) == 4
    assert answer.count(b"b" * 50_000) == 4


@pytest.mark.parametrize("cut", [0, 20, 100, -15, -3])
async def test_an_offer_to_go_on_in_http_2_is_ignored(cut: int) -> None:
    """`curl --http2` over plain HTTP: answered in HTTP/1.1, with the whole body, and the next request too."""
    async with connected() as client:
        first = post("abcdef", H2C, last=False)
        answer = await client.answer(first[:cut], first[cut:] + post("second", H2C, last=False), post("third"))
    assert answer.count(OK) == 3
    for body in (b"abcdef", b"second", b"third"):
        assert b"POST /x " + body in answer
    assert [set(headers) >= {"host", "content-length"} for headers in client.app.headers] == [True] * 3


async def test_what_waits_on_a_connection_is_bounded() -> None:
    """Requests are answered in turn; beyond so many that wait the connection ends, and none of them is kept."""
    async with connected() as client:
        answers = await client.answer("GET / HTTP/1.1\r\n\r\n" * MAX_PIPELINED, post("z"))
        assert answers.count(OK) == MAX_PIPELINED + 1
    async with connected() as client:
        await client.answer("GET /wait HTTP/1.1\r\n\r\n" + "GET / HTTP/1.1\r\n\r\n" * 2 * MAX_PIPELINED)
        assert len(client.app.headers) == 1


async def test_an_offer_with_a_body_in_chunks_is_ignored() -> None:
    """The body is read as its own headers say."""
    head = f"POST /x HTTP/1.1\r\n{H2C}Transfer-Encoding: chunked\r\n\r\n"
    async with connected() as client:
        answer = await client.answer(head, "3\r\nabc\r\n", "0\r\n\r\n", post("end"))
    assert b"POST /x abc" in answer
    assert answer.endswith(b"POST /x end")


@pytest.mark.parametrize("data", ["CONNECT a:1 HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00", "GET / HTTP/9\r\n\r\n"])
async def test_what_is_no_request_is_a_400(data: str) -> None:
    """In the envelope, and the connection ends."""
    async with connected() as client:
        assert await client.refusal(data) == (400, "invalid_http")


async def test_who_leaves_with_a_second_request_waiting_is_gone_for_the_first() -> None:
    """C8: the request that runs hears of it, and not only the one that has not begun."""
    async with connected() as client:
        client.writer.write(b"GET /wait HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            await client.app.waits.wait()
            client.writer.close()
            await client.app.gone.wait()


async def test_garbage_behind_a_request_does_not_break_into_its_answer() -> None:
    """The connection ends; no second status line stands in the middle of an answer."""
    async with connected() as client:
        assert await client.answer("GET /wait HTTP/1.1\r\n\r\n", "\x00\x00\x00") == b""
        async with asyncio.timeout(PATIENCE_S):
            await client.app.gone.wait()
