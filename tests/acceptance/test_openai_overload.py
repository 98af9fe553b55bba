"""The official client against an edge behind which everything is full: refusals at once, and patience that shows."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from load.pipeline import Pipeline
from tests.acceptance.openai_clients import SIMULATED, answer_to, openai_at, question
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import Wiretap, listening

pytestmark = pytest.mark.timeout(120)

SLOTS, TICKETS, REQUESTS = 2, 4, 8
TOKENS = 200


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Two slots, room for few tickets and few requests; a comment after half a second of silence."""
    wanted = {
        "inference.simulated_step_ms": 5,
        "inference.slots": SLOTS,
        "topology.tickets_per_subject": TICKETS,
        "topology.requests_per_subject": REQUESTS,
        "edge.keep_alive_s": 0.5,
    }
    arguments = ["--engine", "simulated", "--replicas", "edge=1"]
    for name, value in wanted.items():
        arguments += ["--set", f"{name}={value}"]
    pipeline = Pipeline(tmp_path_factory.mktemp("narrow"), arguments)
    yield pipeline
    assert pipeline.stop() == 0, pipeline.output[-3000:]


@pytest_asyncio.fixture
async def client(narrow: Pipeline) -> AsyncIterator[Any]:
    async with openai_at(narrow.api_url) as client:
        yield client


@pytest_asyncio.fixture
async def tap(narrow: Pipeline) -> AsyncIterator[Wiretap]:
    async with listening(narrow.url) as tap:
        yield tap
        await tap.settled()


@pytest.mark.parametrize("streamed", [False, True])
async def test_surplus_is_refused_at_once(client: Any, tap: Wiretap, *, streamed: bool) -> None:
    """Of fifty at once those that find room are answered right, the others get 429 with Retry-After (C20)."""

    async def ask(number: int) -> str:
        asked: dict[str, Any] = {"messages": question(f"{number}?"), "max_tokens": TOKENS, "stream": streamed}
        try:
            done = await client.chat.completions.create(model=SIMULATED, **asked)
        except openai.RateLimitError as refused:
            return f"{refused.code}, {1 <= int(refused.response.headers['retry-after']) < 600}"
        if streamed:
            pieces: list[Any] = [choice async for chunk in done for choice in chunk.choices]
            text = "".join(piece.delta.content or "" for piece in pieces)
        else:
            text = done.choices[0].message.content
        return "right" if text == answer_to(f"{number}?", TOKENS) else text

    found = Counter(await asyncio.gather(*(ask(number) for number in range(50))))
    print(found)
    assert found.keys() == {"right", "busy, True"}
    assert found["right"] >= REQUESTS


async def test_the_client_tries_again_by_itself(client: Any, tap: Wiretap) -> None:
    """With its own retries, which follow Retry-After, everybody is answered in the end."""
    patient = client.with_options(max_retries=50)
    asked = [f"again {number}?" for number in range(30)]
    done = await asyncio.gather(
        *(patient.chat.completions.create(model=SIMULATED, messages=question(text), max_tokens=20) for text in asked)
    )
    assert [each.choices[0].message.content for each in done] == [answer_to(text, 20) for text in asked]


async def test_what_waits_is_kept_alive(narrow: Pipeline, client: Any, tap: Wiretap) -> None:
    """A stream whose request waits for a slot gets comments until its first token, and none inside an event (C19)."""
    busy = [
        asyncio.create_task(
            client.chat.completions.create(model=SIMULATED, messages=question(f"{slot}"), max_tokens=500)
        )
        for slot in range(SLOTS)
    ]
    await until(lambda: tap.running == SLOTS, "full slots", every_s=0.01)
    body = {"model": SIMULATED, "messages": question("late"), "max_tokens": 10, "stream": True}
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.post(f"{narrow.api_url}/chat/completions", json=body)
    events = answer.text.removesuffix("\n\n").split("\n\n")
    comments = [event for event in events if event == ": keep-alive"]
    assert comments
    assert events[: len(comments)] == comments
    assert all(event.startswith("data: ") and "\n" not in event for event in events[len(comments) :])
    await asyncio.gather(*busy)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_deadline_passes(client: Any, tap: Wiretap, *, streamed: bool) -> None:
    """A whole answer that comes too late is a 504; of a stream that has begun it is an error in it, and no end mark."""
    asked: dict[str, Any] = {"model": SIMULATED, "messages": question("x"), "max_tokens": 6000, "stream": streamed}
    asked["extra_body"] = {"deadline_s": 1.0}
    if not streamed:
        with pytest.raises(openai.APIStatusError) as raised:
            await client.chat.completions.create(**asked)
        assert (raised.value.status_code, raised.value.code) == (504, "deadline")
        return
    stream = await client.chat.completions.create(**asked)
    with pytest.raises(openai.APIError) as broken:
        await read(stream)
    assert broken.value.code == "deadline"


async def read(stream: Any) -> None:
    """To its end: no finish reason may come."""
    async for chunk in stream:
        assert not chunk.choices[0].finish_reason
