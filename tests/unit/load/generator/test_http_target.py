"""The HTTP client reads answers as OpenAI's servers stream them, and gives a code to everything that can go wrong."""

import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from load.generator.http_target import HttpTarget
from load.generator.record import Record
from load.generator.target import Failed, Unreachable
from load.workload.chats import Chat

CHAT = Chat([{"role": "user", "content": "Hi"}], 2, 0)


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def piece(content: str, finish: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": content}, "finish_reason": finish}])


ANSWER = [
    piece(""),
    piece("Two"),
    piece(" words", "length"),
    event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2}),
]


class Server:
    """Answers with `status`, then the `events`."""

    def __init__(self) -> None:
        self.events = [*ANSWER, b"data: [DONE]\n\n"]
        self.status = 200
        self.asked: list[dict[str, object]] = []
        self.models = ["m"]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        for one in self.events:
            await response.write(one)
        return response

    async def list(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name} for name in self.models]})


@pytest.fixture
def server() -> Server:
    return Server()


@pytest_asyncio.fixture
async def url(server: Server) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_get("/v1/models", server.list)
    async with TestServer(app) as running:
        yield str(running.make_url("/"))


async def asked(url: str) -> Record:
    record = Record(0, 0.0, 2)
    async with HttpTarget(url, "") as target:
        await target.ask(CHAT, record)
    return record


async def test_answer(url: str, server: Server) -> None:
    """Pieces with text are events, the last one's usage and finish are kept; what is asked is what was wanted."""
    record = await asked(url)
    assert (record.pieces, len(record.events), record.finish) == (["Two", " words"], 2, "length")
    assert (record.prompt_tokens, record.output_tokens) == (7, 2)
    body = server.asked[0]
    assert (body["model"], body["messages"], body["max_tokens"], body["ignore_eos"]) == ("m", CHAT.messages, 2, True)


@pytest.mark.parametrize(
    ("status", "events", "code"),
    [
        (429, [b"busy"], "429"),
        (500, [b"{}"], "500"),
        (200, ANSWER, "broken_off"),
        (200, [event(error={"code": 503, "message": "gone"})], "stream_503"),
        (200, [event(error="gone")], "stream_error"),
        (200, [b"data: <html>\n\n"], "unreadable"),
    ],
)
async def test_failures(url: str, server: Server, status: int, events: list[bytes], code: str) -> None:
    """Every way to fail has its code."""
    server.status, server.events = status, events
    with pytest.raises(Failed) as failed:
        await asked(url)
    assert failed.value.code == code


async def test_gone(server: Server) -> None:
    """A server that went away during the run is a connection error of that request."""
    app = web.Application()
    app.router.add_get("/v1/models", server.list)
    running = TestServer(app)
    await running.start_server()
    async with HttpTarget(str(running.make_url("/v1")), "m") as target:
        await running.close()
        with pytest.raises(Failed) as failed:
            await target.ask(CHAT, Record(0, 0.0, 2))
    assert failed.value.code == "connection"
    assert re.search(r"connection: (connection|the server) \w", str(failed.value))


async def entered(url: str, model: str) -> str:
    async with HttpTarget(url, model) as target:
        return target.model


async def test_model(url: str, server: Server) -> None:
    """The only model needs no name; of several, and for one that is not served, the names are said."""
    assert await entered(url, "") == "m"
    with pytest.raises(Unreachable, match=r"no model x.*serves m"):
        await entered(url, "x")
    server.models = ["a", "b"]
    with pytest.raises(Unreachable, match=r"--model is needed.*a, b"):
        await entered(url, "")


async def test_no_server() -> None:
    """Nobody there is said at once, in plain words."""
    for host in ("127.0.0.1", "localhost"):
        url = f"http://{host}:{unused_port()}"
        with pytest.raises(Unreachable) as raised:
            await entered(url, "m")
        assert str(raised.value) == f"no server at {url}/v1: connection refused"
