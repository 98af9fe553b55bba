"""An edge dies by SIGKILL in the middle of a stream: the client goes on at another one, by the number it has."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import openai
import pytest
from openai.types.responses import ResponseStreamEvent

from broker.free_ports import free_port
from broker.server import EmbeddedServer
from tests.integration.edge.responses.conftest import SHARED, Scene, client_at
from tests.integration.edge.responses.stand_in import StandIn

pytestmark = SHARED

RUN = "import sys; from stages.lifecycle import run_stage; sys.exit(run_stage('edge', {}))"

WORDS = [f"{number} é你😀 " for number in range(30)]


@asynccontextmanager
async def edge_process(server: EmbeddedServer, port: int) -> AsyncGenerator[subprocess.Popen[str]]:
    """An edge as a process of its own, ready; killed at the end if it is still there."""
    environ = {**os.environ, "HEADRACE_NATS_URL": server.url, "HEADRACE_LOG_FORMAT": "json"}
    environ |= {"HEADRACE_EDGE_PORT": str(port), "HEADRACE_EDGE_KEEP_ALIVE_S": "0.3"}
    popen = subprocess.Popen([sys.executable, "-c", RUN], env=environ, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert popen.stderr is not None
    try:
        line = ""
        async with asyncio.timeout(30):
            while "stage.ready" not in line:
                line = await asyncio.to_thread(popen.stderr.readline)
                assert line, "it ended"
        yield popen
    finally:
        popen.kill()
        popen.wait()
        popen.stderr.close()


class Reader:
    """What a client has of a response: its id, its text, and the number of the last event."""

    def __init__(self) -> None:
        self.response_id = ""
        self.text = ""
        self.number = -1
        self.last: ResponseStreamEvent | None = None

    async def read(
        self, events: AsyncIterator[ResponseStreamEvent], at_text: Callable[[], None] = lambda: None
    ) -> None:
        async for event in events:
            assert event.sequence_number > self.number
            self.number, self.last = event.sequence_number, event
            if event.type == "response.created":
                self.response_id = event.response.id
            if event.type == "response.output_text.delta":
                self.text += event.delta
                at_text()


async def test_no_character_is_missing_or_twice(scene: Scene, stand_in: StandIn, other: openai.AsyncOpenAI) -> None:
    """The request goes on, though it is not in background; the other edge's events are the rest of the first one's."""
    port, reader = free_port(), Reader()
    async with edge_process(scene.server, port) as process, client_at(port) as client:
        stream = await client.responses.create(model="m", input="Count.", stream=True)
        asked = await stand_in.next()
        for word in WORDS[:10]:
            await asked.say(word)
        with pytest.raises(openai.APIConnectionError):  # behind what it has sent already
            await reader.read(aiter(stream), at_text=process.kill)
    assert reader.text
    rest = await other.responses.retrieve(reader.response_id, stream=True, starting_after=reader.number)
    for word in WORDS[10:]:
        await asked.say(word)
    await asked.say("end.", finish="stop")
    await reader.read(aiter(rest))
    assert reader.last is not None
    assert reader.last.type == "response.completed"
    assert reader.text == "".join(WORDS) + "end." == reader.last.response.output_text
    assert not asked.cancelled.is_set()
