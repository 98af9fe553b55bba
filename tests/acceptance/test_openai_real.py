"""The official client, the edge, and vLLM with the bundled model: JSON Schema, tools, and what samples real logits."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Literal

import openai
import pytest
import pytest_asyncio
from pydantic import BaseModel, ConfigDict

from load.parity_question import WEATHER
from load.pipeline import Pipeline
from tests.acceptance.openai_clients import openai_at, question, text_of

pytestmark = [pytest.mark.timeout(180), pytest.mark.real_engine]

MODEL = "SmolLM2-135M-Instruct"
FRANCE = question("What is the capital of France?")


class City(BaseModel):
    """A small answer, so that a small model gets to its end."""

    model_config = ConfigDict(extra="forbid")

    name: Literal["Paris", "London", "Rome"]
    capital: bool


NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest_asyncio.fixture
async def client(real: Pipeline) -> AsyncIterator[Any]:
    async with openai_at(real.api_url, timeout=120.0) as client:
        yield client


async def asked(client: Any, **options: Any) -> Any:
    """One whole answer at temperature 0."""
    wanted = {"model": MODEL, "messages": FRANCE, "temperature": 0, "max_tokens": 60, **options}
    return await client.chat.completions.create(**wanted)


async def test_an_answer(client: Any) -> None:
    """It answers, ends by itself, and streams the same text."""
    done = await asked(client)
    assert "Paris" in done.choices[0].message.content
    assert done.choices[0].finish_reason == "stop"
    chunks = [chunk async for chunk in await asked(client, stream=True)]
    assert text_of(chunks) == done.choices[0].message.content


async def test_json_schema(client: Any) -> None:
    """The client's `parse` gets the model that it asked for; streamed, its helper does too."""
    options: dict[str, Any] = {"model": MODEL, "messages": FRANCE, "temperature": 0, "max_tokens": 60}
    done = await client.chat.completions.parse(**options, response_format=City)
    assert isinstance(done.choices[0].message.parsed, City)
    assert done.choices[0].finish_reason == "stop"
    async with client.chat.completions.stream(**options, response_format=City) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.parsed == done.choices[0].message.parsed


async def test_json_object(client: Any) -> None:
    """`json_object` begins one and, where the limit leaves room, ends it; what is cut says `length` (F9)."""
    done = await asked(client, response_format={"type": "json_object"}, max_tokens=24)
    text, finish = done.choices[0].message.content, done.choices[0].finish_reason
    assert text.lstrip().startswith("{")
    assert finish in ("length", "stop")
    if finish == "stop":
        assert isinstance(json.loads(text), dict)


async def test_structured_outputs(client: Any) -> None:
    """VLLM's own ways to constrain an answer reach the engine through `extra_body`."""
    regex = await asked(client, extra_body={"structured_outputs": {"regex": "(Paris|Rome), [0-9]{4}"}})
    assert re.fullmatch("(Paris|Rome), [0-9]{4}", regex.choices[0].message.content)
    choice = await asked(client, extra_body={"structured_outputs": {"choice": ["Paris", "Rome"]}})
    assert choice.choices[0].message.content in ("Paris", "Rome")


@pytest.mark.parametrize(("tool_choice", "finish"), [("required", "tool_calls"), (NAMED, "stop")])
async def test_tool_calls(client: Any, tool_choice: Any, finish: str) -> None:
    """Calls that have to be made are made, with arguments of their schema, whole and streamed alike (F11).

    A named one ends with `stop`, as OpenAI's and vLLM's do.
    """
    options: dict[str, Any] = {"tools": [WEATHER], "tool_choice": tool_choice, "parallel_tool_calls": False}
    done = await asked(client, **options)
    choice = done.choices[0]
    assert choice.finish_reason == finish
    assert not choice.message.content
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
    wanted = {"model": MODEL, "messages": FRANCE, "temperature": 0, "max_tokens": 60, **options}
    async with client.chat.completions.stream(**wanted) as stream:
        final = await stream.get_final_completion()
    (streamed,) = final.choices[0].message.tool_calls
    assert (streamed.function.name, streamed.function.arguments) == (call.function.name, call.function.arguments)


async def test_a_call_that_is_cut(client: Any) -> None:
    """Cut by its limit it says `length`, and no brace is invented (F3)."""
    done = await asked(client, tools=[WEATHER], tool_choice=NAMED, max_tokens=3)
    assert done.choices[0].finish_reason == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(done.choices[0].message.tool_calls[0].function.arguments)


async def test_tools_that_are_left_to_the_model(client: Any) -> None:
    """`none` answers with text as if there were no tools; `auto`, which this model cannot, is refused (F12)."""
    plain = await asked(client)
    none = await asked(client, tools=[WEATHER], tool_choice="none")
    assert none.choices[0].message.content == plain.choices[0].message.content
    for options in ({}, {"tool_choice": "auto"}):
        with pytest.raises(openai.BadRequestError) as raised:
            await asked(client, tools=[WEATHER], **options)
        assert raised.value.param == "tools"


async def test_choices_stop_and_logprobs(client: Any) -> None:
    """N choices are equal at temperature 0; a stop cuts their text and the entries of what it cut (C14)."""
    full = await asked(client, logprobs=True, top_logprobs=2)
    text = full.choices[0].message.content
    stop = full.choices[0].logprobs.content[3].token
    done = await asked(client, n=2, stop=stop, logprobs=True, top_logprobs=2)
    assert [choice.message.content for choice in done.choices] == [text[: text.index(stop)]] * 2
    assert {choice.finish_reason for choice in done.choices} == {"stop"}
    entries = done.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == text[: text.index(stop)]
    assert all(entry.logprob == max(top.logprob for top in entry.top_logprobs) for entry in entries)
