"""The official client against the edge: tool calls and thoughts that a model writes by itself, whole and streamed.

The simulated engine says what the test writes, letter by letter, so every marker comes in pieces.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from load.pipeline import Pipeline
from tests.acceptance.openai_clients import SIMULATED, openai_at, question, text_of

pytestmark = pytest.mark.timeout(120)

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    }
    for name in ("f", "g")
]
CALL = '<tool_call>\n{"name": "f", "arguments": {"id": 42}}\n</tool_call>'
TWO_CALLS = f'{CALL}<tool_call>{{"name": "g", "arguments": {{}}}}</tool_call>'
WANTED: list[tuple[str, dict[str, Any]]] = [("f", {"id": 42}), ("g", {})]


@pytest_asyncio.fixture
async def client(echo: Pipeline) -> AsyncIterator[Any]:
    async with openai_at(echo.api_url) as client:
        yield client


async def whole(client: Any, says: str, **options: Any) -> Any:
    """The choice of a model that says this."""
    wanted: dict[str, Any] = {"model": SIMULATED, "messages": question(says), "max_tokens": 500, **options}
    return (await client.chat.completions.create(**wanted)).choices[0]


async def streamed(client: Any, says: str, **options: Any) -> Any:
    """The same, put together by the client's own helper."""
    wanted: dict[str, Any] = {"model": SIMULATED, "messages": question(says), "max_tokens": 500, **options}
    async with client.chat.completions.stream(**wanted) as stream:
        return (await stream.get_final_completion()).choices[0]


def calls(choice: Any) -> list[tuple[str, Any]]:
    found: list[Any] = choice.message.tool_calls or []
    return [(call.function.name, json.loads(call.function.arguments)) for call in found]


@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("options", [{}, {"tool_choice": "auto"}])
async def test_calls_of_the_models_own(client: Any, ask: Any, options: dict[str, Any]) -> None:
    """`auto`, and tools alone: calls with ids of their own and parseable arguments, `tool_calls`, no text (F1, F11)."""
    choice = await ask(client, TWO_CALLS, tools=TOOLS, **options)
    assert calls(choice) == WANTED
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    ids = [call.id for call in choice.message.tool_calls]
    assert len(set(ids)) == 2
    assert all(ids)


@pytest.mark.parametrize("ask", [whole, streamed])
async def test_one_call_only(client: Any, ask: Any) -> None:
    """`parallel_tool_calls: false`: the first."""
    choice = await ask(client, TWO_CALLS, tools=TOOLS, parallel_tool_calls=False)
    assert calls(choice) == WANTED[:1]


@pytest.mark.parametrize("ask", [whole, streamed])
async def test_no_calls(client: Any, ask: Any) -> None:
    """`none`: what the model writes stays text. So does what is no call, with tools to be called."""
    choice = await ask(client, TWO_CALLS, tools=TOOLS, tool_choice="none")
    assert (choice.message.content, choice.finish_reason) == (TWO_CALLS, "stop")
    assert not choice.message.tool_calls
    choice = await ask(client, "a < b, and <tool is no call", tools=TOOLS)
    assert (choice.message.content, choice.finish_reason) == ("a < b, and <tool is no call", "stop")


async def test_a_call_that_is_cut(client: Any) -> None:
    """Cut by its limit it says `length`; no brace is invented (F3)."""
    wanted: dict[str, Any] = {"model": SIMULATED, "messages": question(CALL), "tools": TOOLS}
    wanted["max_tokens"] = CALL.index("42") + 1
    done = (await client.chat.completions.create(**wanted)).choices[0]
    assert done.finish_reason == "length"
    assert not "".join(call.function.arguments for call in done.message.tool_calls or ()).endswith("}")
    stream: Any = await client.chat.completions.create(**wanted, stream=True)
    pieces: list[Any] = [choice async for chunk in stream for choice in chunk.choices]
    assert pieces[-1].finish_reason == "length"
    assert not "".join(arguments_in(piece) for piece in pieces).endswith("}")


def arguments_in(piece: Any) -> str:
    """What one piece of a stream brings of calls' arguments."""
    found: list[Any] = piece.delta.tool_calls or []
    return "".join(call.function.arguments or "" for call in found)


async def test_thoughts(client: Any) -> None:
    """Thoughts are no part of the text: `reasoning_content`, whole and streamed (F5). Stops leave them alone (A14)."""
    says = "<think>so, 42?</think>It is 42."
    choice = await whole(client, says, stop="?")
    assert (choice.message.reasoning_content, choice.message.content) == ("so, 42?", "It is 42.")
    wanted: dict[str, Any] = {"model": SIMULATED, "messages": question(says), "max_tokens": 500, "stream": True}
    chunks = [chunk async for chunk in await client.chat.completions.create(**wanted)]
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "so, 42?"
    assert text_of(chunks) == "It is 42."


async def test_a_conversation_with_calls(client: Any) -> None:
    """What the answer said can be sent back as it came, with the tool's result behind it (B7, B10)."""
    first = await whole(client, CALL, tools=TOOLS)
    result = {"role": "tool", "tool_call_id": first.message.tool_calls[0].id, "content": "seven"}
    turns: list[Any] = [*question(CALL), first.message.model_dump(exclude_none=True), result, *question("thanks")]
    done = await client.chat.completions.create(model=SIMULATED, messages=turns, tools=TOOLS, max_tokens=50)
    assert done.choices[0].message.content == "thanks"
    turns[1]["tool_calls"][0]["function"]["arguments"] = "{bad"
    with pytest.raises(openai.BadRequestError, match="arguments"):
        await client.chat.completions.create(model=SIMULATED, messages=turns, tools=TOOLS, max_tokens=50)


async def test_separators_inside_an_event(echo: Pipeline) -> None:
    """U+2028, U+2029 and U+0085 never stand raw in a line: a reader that splits by any of them still parses (C10)."""
    says = "a\u2028b\u2029c\u0085d 🎉"
    body = {"model": SIMULATED, "messages": question(says), "max_tokens": 100, "stream": True}
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.post(f"{echo.api_url}/chat/completions", json=body)
    assert answer.content.isascii()
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert events.pop() == "[DONE]"
    pieces = [choice["delta"].get("content") or "" for event in events for choice in json.loads(event)["choices"]]
    assert "".join(pieces) == says
