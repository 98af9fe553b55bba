"""Thoughts and tool calls through real processes: a test writes what the model says, and its client gets the parts."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from headrace import CompletedChoice, Headrace, RequestFault
from load.pipeline import Pipeline

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False},
        },
    }
    for name in ("f", "g")
]
F = '{"name": "f", "arguments": {"id": 42}}'
G = '{"name": "g", "arguments": {}}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(echo: Pipeline) -> AsyncGenerator[Headrace]:
    async with Headrace(echo.url) as found:
        yield found


async def answer(client: Headrace, says: str, **options: Any) -> CompletedChoice:
    """What a client gets of a model that says this."""
    options = {"max_tokens": 1000, **options}
    return (await client.complete(messages=[{"role": "user", "content": says}], **options)).choices[0]


def calls(choice: CompletedChoice) -> list[tuple[str, str]]:
    return [(call.function.name, call.function.arguments) for call in choice.tool_calls]


async def test_tool_calls(client: Headrace) -> None:
    """F1, F11: two calls with thoughts before them, each with an id of its own; streamed it is the same."""
    says = f"<think>so</think>\n<tool_call>\n{F}\n</tool_call>\n<tool_call>{G}</tool_call>"
    choice = await answer(client, says, tools=TOOLS)
    assert (choice.reasoning, choice.text, choice.finish) == ("so", "", "tool_calls")
    assert calls(choice) == [("f", '{"id": 42}'), ("g", "{}")]
    assert len({call.id for call in choice.tool_calls}) == 2
    pieces = [
        piece
        async for chunk in client.stream(messages=[{"role": "user", "content": says}], tools=TOOLS, max_tokens=1000)
        for piece in chunk.tool_calls or ()
    ]
    assert "".join(piece.arguments for piece in pieces if piece.index == 0) == '{"id": 42}'


async def test_one_call_only(client: Headrace) -> None:
    """`parallel_tool_calls: false`: the first."""
    says = f"<tool_call>{F}</tool_call><tool_call>{G}</tool_call>"
    assert calls(await answer(client, says, tools=TOOLS, parallel_tool_calls=False)) == [("f", '{"id": 42}')]


async def test_a_call_that_is_cut_off(client: Headrace) -> None:
    """F3: it ends by length, and no bracket is invented."""
    choice = await answer(client, f"<tool_call>{F}</tool_call>", tools=TOOLS, max_tokens=40)
    assert choice.finish == "length"
    assert [name for name, _ in calls(choice)] == ["f"]
    assert '{"id": 42}'.startswith(calls(choice)[0][1])
    assert calls(choice)[0][1] != '{"id": 42}'


async def test_tools_that_are_not_shown_make_no_calls(client: Headrace) -> None:
    """Without tools, or with `tool_choice: none`, or where nothing is to be split off, the text is content."""
    says = f"<tool_call>{F}</tool_call>"
    for options in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS, "split": False}):
        choice = await answer(client, says, **options)
        assert (choice.text, calls(choice), choice.finish) == (says, [], "stop")


async def test_calls_that_a_grammar_holds(client: Headrace) -> None:
    """`required` and a named tool: the same calls from the forms that the grammars allow."""
    choice = await answer(client, '[{"name": "f", "parameters": {"id": 42}}]', tools=TOOLS, tool_choice="required")
    assert (calls(choice), choice.text, choice.finish) == ([("f", '{"id": 42}')], "", "tool_calls")
    named = {"type": "function", "function": {"name": "f"}}
    choice = await answer(client, '{"id": 42}', tools=TOOLS, tool_choice=named)
    assert (calls(choice), choice.text, choice.finish) == ([("f", '{"id": 42}')], "", "tool_calls")


async def test_thoughts_that_the_prompt_opens(client: Headrace) -> None:
    """F6, F5: only the closing tag is generated; the stop string counts in the content alone."""
    choice = await answer(client, "why not 4</think>42 then", template_options={"enable_thinking": True}, stop="2")
    assert (choice.reasoning, choice.text, choice.stop_reason) == ("why not 4", "4", "2")


async def test_any_text_comes_back(client: Headrace) -> None:
    """Control tokens that are spelled out, all planes of Unicode, line breaks."""
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    says = f"h\u00e4llo {family} <|im_end|> \u4f60\u597d\r\n\t\u0000 \ufeff</think> [TOOL_CALLS]"
    assert (await answer(client, says)).text == says


async def test_unknown_tools_are_refused(client: Headrace) -> None:
    """By name, before anything runs."""
    with pytest.raises(RequestFault, match="h"):
        await answer(client, "x", tools=TOOLS, tool_choice={"type": "function", "function": {"name": "h"}})
