"""The official client against the edge: responses, in background, and gone on with at another edge."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from load.pipeline import Pipeline
from tests.acceptance.openai_clients import SIMULATED, Edge, answer_to, edge_beside, openai_at
from tests.acceptance.waiting import until

pytestmark = pytest.mark.timeout(120)

ASKED = "Where does the river go?"
BROKEN = (openai.OpenAIError, httpx.TransportError)
"""What a stream that breaks raises: the client hands on what its HTTP library says."""

LONG: dict[str, Any] = {"model": SIMULATED, "input": ASKED, "max_output_tokens": 800, "background": True}


@pytest_asyncio.fixture
async def client(edges: Pipeline) -> AsyncIterator[Any]:
    async with openai_at(edges.api_url) as client:
        yield client


async def test_whole_and_streamed(client: Any) -> None:
    """The same text both ways; the client's own helper agrees; usage is right."""
    options: dict[str, Any] = {"model": SIMULATED, "input": ASKED, "max_output_tokens": 30}
    done = await client.responses.create(**options)
    assert done.output_text == answer_to(ASKED, 30)
    assert done.usage is not None
    assert done.usage.output_tokens == 30
    async with client.responses.stream(**options) as stream:
        events = [event async for event in stream]
    assert text_in(events) == events[-1].response.output_text == answer_to(ASKED, 30)


async def test_in_background(client: Any) -> None:
    """It is there at once, goes on without its client, and is found whole by its id."""
    made = await client.responses.create(**{**LONG, "max_output_tokens": 60})
    assert made.status in ("queued", "in_progress")

    async def ended() -> bool:
        return (await client.responses.retrieve(made.id)).status not in ("queued", "in_progress")

    await until(ended, "the response has ended")
    found = await client.responses.retrieve(made.id)
    assert (found.status, found.output_text) == ("incomplete", answer_to(ASKED, 60))


async def test_resumed_at_another_edge(edges: Pipeline, client: Any) -> None:
    """The edge that streams it is killed in mid-answer: the stream goes on at another one behind the last event.

    Every character comes once, sequence numbers go on, and the whole is the right answer.
    """
    events: list[Any] = []
    async with edge_beside(edges) as first, openai_at(first.url) as there:
        stream = await there.responses.create(**LONG, stream=True)
        with pytest.raises(BROKEN):
            await read_and_kill(stream, events, first)
    assert events[0].type == "response.created"
    assert len(text_in(events)) < len(answer_to(ASKED, 800))
    response_id, last = events[0].response.id, events[-1].sequence_number
    stream = await client.responses.retrieve(response_id, stream=True, starting_after=last)
    events += [event async for event in stream]
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    assert text_in(events) == answer_to(ASKED, 800)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == answer_to(ASKED, 800)


async def test_resumed_within_a_delta(client: Any) -> None:
    """Numbers count characters: whoever has the first half of a delta gets the other half, not all of it again."""
    stream = await client.responses.create(**{**LONG, "max_output_tokens": 60}, stream=True)
    events: list[Any] = [event async for event in stream]
    middle = next(at for at, event in enumerate(events) if at > 8 and len(getattr(event, "delta", "")) > 3)
    known = text_in(events[: middle + 1])[:-2]
    stream = await client.responses.retrieve(
        events[0].response.id, stream=True, starting_after=events[middle].sequence_number - 2
    )
    rest: list[Any] = [event async for event in stream]
    assert known + text_in(rest) == answer_to(ASKED, 60)
    assert rest[-1] == events[-1]


async def read_and_kill(stream: Any, events: list[Any], edge: Edge) -> None:
    """Reads on until the stream ends; its edge is killed in the middle."""
    async for event in stream:
        events.append(event)
        if len(events) == 12:
            edge.process.kill()


def text_in(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


async def test_cancelled_and_deleted(client: Any) -> None:
    """A cancelled response says so; a deleted one is not found any more."""
    made = await client.responses.create(**{**LONG, "max_output_tokens": 5000})
    gone = await client.responses.cancel(made.id)
    assert gone.status == "cancelled"
    assert (await client.responses.retrieve(made.id)).status == "cancelled"
    await client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


async def test_conversation(client: Any) -> None:
    """A response that follows another one has that conversation in its prompt."""
    first = await client.responses.create(model=SIMULATED, input=ASKED, max_output_tokens=10)
    second = await client.responses.create(
        model=SIMULATED, input="And then?", max_output_tokens=10, previous_response_id=first.id
    )
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens + 10
    assert second.output_text != answer_to("And then?", 10)


async def test_many_at_once(client: Any) -> None:
    """Each of thirty responses at once gets its own answer."""
    asked = [f"{number}: {ASKED}" for number in range(30)]
    done = await asyncio.gather(
        *(client.responses.create(model=SIMULATED, input=text, max_output_tokens=20) for text in asked)
    )
    assert [each.output_text for each in done] == [answer_to(text, 20) for text in asked]
