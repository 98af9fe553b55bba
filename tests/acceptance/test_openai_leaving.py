"""A client that goes away cancels its request, whatever it waited for; one that stays until the end cancels nothing."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from broker.connection import Inbound
from load.pipeline import Pipeline
from tests.acceptance.openai_clients import SIMULATED, openai_at, question
from tests.acceptance.processes import processes_of, stopped
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import Wiretap, listening

pytestmark = pytest.mark.timeout(120)

IDLE_WITHIN_S = 5.0
"""A second on a machine that has nothing else to do; the figure itself is printed."""

LONG: dict[str, Any] = {"model": SIMULATED, "messages": question("x"), "max_tokens": 6000}


@dataclass
class Watching:
    """A client, and who sees its cancels: the ids of the requests that were cancelled."""

    client: Any
    tap: Wiretap
    cancels: list[str] = field(default_factory=list[str])

    async def on_cancel(self, message: Inbound) -> None:
        self.cancels.append(message.subject.rpartition(".")[2])

    async def gone(self, what: str) -> None:
        """One cancel, an idle engine soon, one `cancelled` terminal, nothing left in any stream."""
        left_at = time.monotonic()
        await until(lambda: bool(self.cancels) and not self.tap.running, "idle engines", every_s=0.01)
        idle_s = time.monotonic() - left_at
        print(f"{what}: idle {idle_s:.2f} s after the client left")
        assert idle_s < IDLE_WITHIN_S
        await self.tap.settled()
        assert len(self.cancels) == 1
        assert await self.tap.terminal(self.cancels[0]) == "cancelled"


@pytest_asyncio.fixture
async def watching(edges: Pipeline) -> AsyncIterator[Watching]:
    async with openai_at(edges.api_url) as client, listening(edges.url) as tap:
        found = Watching(client, tap)
        await tap.connection.subscribe("$KV.hr_cancelled.>", found.on_cancel)
        await tap.connection.prove_subscriptions()
        yield found


async def leave(task: "asyncio.Task[Any]") -> None:
    """The client gives up: its connection is closed."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_in_the_middle_of_a_stream(watching: Watching) -> None:
    """Closed after two chunks of text (C8)."""
    stream = await watching.client.chat.completions.create(**LONG, stream=True)
    for _ in range(3):
        await anext(stream)
    await until(lambda: watching.tap.running == 1, "it runs", every_s=0.01)
    await stream.close()
    await watching.gone("a chat stream")


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
async def test_in_the_middle_of_a_whole_answer(watching: Watching, endpoint: str) -> None:
    """A request that is not streamed is noticed as well, at every endpoint (C8)."""
    client = watching.client
    asking = {
        "chat": lambda: client.chat.completions.create(**LONG),
        "completions": lambda: client.completions.create(model=SIMULATED, prompt="x", max_tokens=6000),
        "responses": lambda: client.responses.create(model=SIMULATED, input="x", max_output_tokens=6000),
    }
    task = asyncio.create_task(asking[endpoint]())
    await until(lambda: watching.tap.running == 1, "it runs", every_s=0.01)
    await leave(task)
    await watching.gone(f"a whole answer of {endpoint}")


@pytest.mark.parametrize("streamed", [False, True])
async def test_before_the_first_token(watching: Watching, edges: Pipeline, *, streamed: bool) -> None:
    """Closed while the request waits in its queue: no engine ever sees it (C8)."""
    with stopped(*processes_of(edges, "preprocess")):
        task = asyncio.create_task(watching.client.chat.completions.create(**LONG, stream=streamed))
        await until(lambda: _stored(watching.tap), "it is in REQUESTS")
        await leave(task)
        await until(lambda: bool(watching.cancels), "a cancel")
    await watching.gone("before the first token")
    assert not watching.tap.opens


async def test_all_choices(watching: Watching) -> None:
    """One cancel ends every choice of a request."""
    stream = await watching.client.chat.completions.create(**LONG, stream=True, n=3)
    await until(lambda: watching.tap.running == 3, "three choices", every_s=0.01)
    await stream.close()
    await watching.gone("three choices")
    assert [await watching.tap.terminal(watching.cancels[0], choice) for choice in (1, 2)] == ["cancelled"] * 2


async def test_normal_ends_cancel_nothing(watching: Watching) -> None:
    """A hundred streams and whole answers that are read to their ends send no cancel (C9)."""
    asked = {**LONG, "max_tokens": 5}

    async def streamed() -> None:
        async for _ in await watching.client.chat.completions.create(**asked, stream=True):
            pass

    async def whole() -> None:
        await watching.client.chat.completions.create(**asked)

    for _ in range(10):
        await asyncio.gather(*(each() for each in (streamed, whole) for _ in range(5)))
    await watching.tap.settled()
    assert watching.cancels == []
    assert len(watching.tap.opens) == 100


async def _stored(tap: Wiretap) -> bool:
    return await tap.messages("REQUESTS") == 1
