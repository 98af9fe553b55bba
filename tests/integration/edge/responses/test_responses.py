"""`/v1/responses` with OpenAI's own client, over HTTP and a real broker; the test plays what is behind the edge."""

import asyncio
from collections.abc import AsyncIterable
from typing import Any

import openai
import pytest

from schemas.faults import Fault
from schemas.result import ToolCallPiece
from tests.integration.edge.responses.conftest import SHARED
from tests.integration.edge.responses.stand_in import Asked, StandIn

pytestmark = SHARED

TOOL: Any = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": True}


async def capital(asked: Asked) -> None:
    await asked.say("Par")
    await asked.say("is.", finish="stop")


async def collected(stream: AsyncIterable[Any]) -> list[Any]:
    return [event async for event in stream]


def text_in(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


async def test_a_whole_response(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """Input, instructions and parameters reach the model; the answer is what the client's own types say."""
    stand_in.on_request = capital
    response = await client.responses.create(
        model="m",
        instructions="Be brief.",
        input=[{"role": "user", "content": [{"type": "input_text", "text": "What is the capital?"}]}],
        max_output_tokens=9,
        temperature=0,
        metadata={"for": "test"},
        top_logprobs=0,
        include=["message.output_text.logprobs"],
    )
    assert (response.status, response.output_text) == ("completed", "Paris.")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 2)
    assert (response.metadata, response.max_output_tokens) == ({"for": "test"}, 9)
    output: Any = response.output[0]
    logprobs = output.content[0].logprobs
    assert [entry.token for entry in logprobs] == ["Par", "is."]
    request = (await stand_in.next()).request
    assert [(message.role, message.content) for message in request.messages or []] == [
        ("system", "Be brief."),
        ("user", "What is the capital?"),
    ]
    assert (request.sampling.max_tokens, request.sampling.temperature, request.sampling.logprobs) == (9, 0, 0)
    again = await client.responses.retrieve(response.id)
    assert again == response


async def test_a_stream(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """Events as OpenAI sends them, numbered; the last one has the whole response, which can be asked for afterwards."""

    async def answer(asked: Asked) -> None:
        await asked.say(reasoning="why")
        await asked.say("Hi")
        await asked.say(calls=[ToolCallPiece(index=0, id="call_1", name="f", arguments="{}")], finish="tool_calls")

    stand_in.on_request = answer
    stream = await client.responses.create(model="m", input="Hello", tools=[TOOL], stream=True)
    events = await collected(stream)
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    response = events[-1].response
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert (text_in(events), response.output_text) == ("Hi", "Hi")
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    assert await client.responses.retrieve(response.id) == response
    rest = await client.responses.retrieve(response.id, stream=True, starting_after=numbers[3])
    assert await collected(rest) == events[4:]


async def test_the_accumulator_of_openais_client(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """What it puts together from the events is what the last one says."""

    async def answer(asked: Asked) -> None:
        await asked.say(reasoning="why")
        await asked.say('{"a"')
        await asked.say(": 1}")
        await asked.say(calls=[ToolCallPiece(index=0, id="call_1", name="f", arguments="{}")], finish="tool_calls")

    stand_in.on_request = answer
    async with client.responses.stream(model="m", input="Hello", tools=[TOOL]) as stream:
        events = await collected(stream)
        final = await stream.get_final_response()
    snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    assert snapshots == ['{"a"', '{"a": 1}']
    assert (final.output_text, final.status, len(final.output)) == ('{"a": 1}', "completed", 3)


async def test_background(client: openai.AsyncOpenAI, other: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """It returns at once, queued; any edge tells how far it is, and follows it from any number on, to its end."""
    made = await client.responses.create(model="m", input="Hello", background=True)
    assert made.status == "queued"
    assert (await other.responses.retrieve(made.id)).status == "queued"
    asked = await stand_in.next()
    await asked.say("one ")
    running = await other.responses.retrieve(made.id)
    assert (running.status, running.output_text) == ("in_progress", "one ")
    following = asyncio.create_task(collected(await other.responses.retrieve(made.id, stream=True, starting_after=5)))
    await asked.say("two", finish="length")
    events = await following
    assert text_in(events) == "ne two"
    ended = await client.responses.retrieve(made.id)
    assert (ended.status, ended.output_text) == ("incomplete", "one two")
    assert ended.incomplete_details is not None
    assert ended.incomplete_details.reason == "max_output_tokens"


async def test_a_stream_in_background_outlives_its_client(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """Who leaves a stream in background cancels nothing; the id is known before the model has begun."""
    stream = await client.responses.create(model="m", input="Hello", background=True, stream=True)
    iterator = aiter(stream)
    first: Any = await anext(iterator)
    assert (first.type, first.response.status) == ("response.created", "queued")
    await stream.close()
    asked = await stand_in.next()
    await asked.say("still here", finish="stop")
    assert (await client.responses.retrieve(first.response.id)).output_text == "still here"
    assert not asked.cancelled.is_set()


async def test_a_client_that_leaves_cancels(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """C8: streamed or whole, a response that is not in background ends with its client."""
    stand_in.on_request = lambda asked: asked.say("x")
    stream = await client.responses.create(model="m", input="Hello", stream=True)
    asked = await stand_in.next()
    await stream.close()
    async with asyncio.timeout(30):
        await asked.cancelled.wait()
    stand_in.on_request = None
    whole = asyncio.create_task(client.responses.create(model="m", input="Hello"))
    asked = await stand_in.next(1)
    whole.cancel()
    async with asyncio.timeout(30):
        await asked.cancelled.wait()


async def test_cancel(client: openai.AsyncOpenAI, other: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """At any edge, queued or running; what was said stays. One that has ended is returned as it is."""
    made = await client.responses.create(model="m", input="Hello", background=True)
    await (await stand_in.next()).say("half")
    cancelled = await other.responses.cancel(made.id)
    assert (cancelled.status, cancelled.output_text) == ("cancelled", "half")
    assert await client.responses.retrieve(made.id) == cancelled
    assert await client.responses.cancel(made.id) == cancelled
    events = await collected(await client.responses.retrieve(made.id, stream=True))
    assert (events[-1].type, events[-1].response.status) == ("response.failed", "cancelled")


async def test_delete(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """Nobody can ask for it any more, and if it runs, it ends."""
    made = await client.responses.create(model="m", input="Hello", background=True)
    await client.responses.delete(made.id)
    asked = await stand_in.next()
    async with asyncio.timeout(30):
        await asked.cancelled.wait()
    for ask in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            await ask(made.id)


@pytest.mark.parametrize("response_id", ["resp_unknown", "x", "resp_", "resp_a.b", "resp_*"])
async def test_unknown(client: openai.AsyncOpenAI, response_id: str) -> None:
    """404 for whatever is no response of this tenant."""
    with pytest.raises(openai.NotFoundError) as raised:
        await client.responses.retrieve(response_id)
    assert raised.value.code == "not_found"


async def test_another_tenant(client: openai.AsyncOpenAI, stranger: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """Nobody learns anything of another tenant's response, or ends it."""
    made = await client.responses.create(model="m", input="Hello", background=True)
    for ask in (stranger.responses.retrieve, stranger.responses.cancel, stranger.responses.delete):
        with pytest.raises(openai.NotFoundError):
            await ask(made.id)
    with pytest.raises(openai.BadRequestError, match="no response"):
        await stranger.responses.create(model="m", input="x", previous_response_id=made.id)
    asked = await stand_in.next()
    await asked.say("mine", finish="stop")
    assert (await client.responses.retrieve(made.id)).output_text == "mine"
    assert not asked.cancelled.is_set()


async def test_not_stored(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """With `store: false` nothing is kept that could be asked for; in background that cannot be."""
    stand_in.on_request = capital
    response = await client.responses.create(model="m", input="Hello", store=False)
    assert (response.output_text, response.to_dict()["store"]) == ("Paris.", False)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as raised:
        await client.responses.create(model="m", input="Hello", store=False, background=True)
    assert raised.value.param == "store"


async def test_going_on_from_a_previous_response(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """The conversation is put together again, answer and all; instructions are those of the new one."""
    stand_in.on_request = capital
    first = await client.responses.create(model="m", input="Capital?", instructions="Old.")
    second = await client.responses.create(model="m", input="Sure?", instructions="New.", previous_response_id=first.id)
    messages = (await stand_in.next(1)).request.messages or []
    assert [(message.role, message.content) for message in messages] == [
        ("system", "New."),
        ("user", "Capital?"),
        ("assistant", "Paris."),
        ("user", "Sure?"),
    ]
    items = await client.responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.type for item in items.data] == ["message", "message"]
    assert items.has_more
    with pytest.raises(openai.BadRequestError) as raised:
        await client.responses.create(model="m", input="x", previous_response_id="resp_unknown")
    assert (raised.value.param, raised.value.code) == ("previous_response_id", "previous_response_not_found")


async def test_a_refusal_is_a_plain_error(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """C3: before anything was told the fault has its status and the client's name of the field, streamed or whole."""

    async def refuse(asked: Asked) -> None:
        await asked.fail(Fault("invalid_request", "is above 2", "sampling.max_tokens"))

    stand_in.on_request = refuse
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as raised:
            await client.responses.create(model="m", input="x", stream=stream)
        assert raised.value.param == "max_output_tokens"
    for asked in stand_in.asked:  # nothing is kept of them, which would push out others
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(f"resp_{asked.request.id}")
    made = await client.responses.create(model="m", input="x", background=True)
    ended = await client.responses.retrieve(made.id)
    assert ended.status == "failed"
    assert ended.error is not None
    assert (ended.error.code, ended.error.param) == ("invalid_prompt", "max_output_tokens")


async def test_a_fault_in_the_middle(client: openai.AsyncOpenAI, stand_in: StandIn) -> None:
    """C4: the stream ends with `response.failed`, never with a clean end."""

    async def fail(asked: Asked) -> None:
        await asked.say("a")
        await asked.fail(Fault("internal", "a defect"))

    stand_in.on_request = fail
    events = await collected(await client.responses.create(model="m", input="x", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "server_error"


async def test_a_silent_queue_tells_the_id(
    client: openai.AsyncOpenAI, other: openai.AsyncOpenAI, stand_in: StandIn
) -> None:
    """A streamed response that waits for long is known by its id, so that it can be followed elsewhere."""
    stream = await client.responses.create(model="m", input="x", stream=True)
    first: Any = await anext(aiter(stream))
    assert first.type == "response.created"
    following = asyncio.create_task(
        collected(await other.responses.retrieve(first.response.id, stream=True, starting_after=0))
    )
    await (await stand_in.next()).say("late", finish="stop")
    assert text_in(await following) == "late"
    await stream.close()
