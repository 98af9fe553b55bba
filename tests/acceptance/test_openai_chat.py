"""The official client against the edge over real processes: chats and completions of the simulated engine."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from openai.types.chat import ChatCompletionChunk

from load.pipeline import Pipeline
from load.simulated_truth import ids_of_question, ids_of_text, true_ids, true_text
from tests.acceptance.openai_clients import SIMULATED, answer_to, openai_at, question, text_of

pytestmark = pytest.mark.timeout(120)

ASKED = "What turns the wheel?"
TOKENS = 40


@pytest_asyncio.fixture
async def client(edges: Pipeline) -> AsyncIterator[Any]:
    async with openai_at(edges.api_url) as client:
        yield client


async def chunks_of(client: Any, **options: Any) -> list[ChatCompletionChunk]:
    options = {"model": SIMULATED, "messages": question(ASKED), "max_tokens": TOKENS, **options}
    stream = await client.chat.completions.create(stream=True, **options)
    return [chunk async for chunk in stream]


async def test_whole(client: Any) -> None:
    """The right text to the last character, its finish reason, and usage."""
    done = await client.chat.completions.create(model=SIMULATED, messages=question(ASKED), max_completion_tokens=TOKENS)
    (choice,) = done.choices
    assert (choice.message.role, choice.message.content) == ("assistant", answer_to(ASKED, TOKENS))
    assert choice.finish_reason == "length"
    assert done.usage is not None
    prompt = len(ids_of_question(ASKED))
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (prompt, TOKENS)
    assert done.usage.total_tokens == prompt + TOKENS
    assert done.id.startswith("chatcmpl-")


async def test_streamed(client: Any) -> None:
    """The same text in pieces; one id, time and model in all; the role once, the finish reason once (C12); the usage
    in one more chunk where it is asked for, and only then (C1).
    """
    chunks = await chunks_of(client, stream_options={"include_usage": True})
    assert text_of(chunks) == answer_to(ASKED, TOKENS)
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert [chunk.choices[0].delta.role for chunk in chunks[:-1]] == ["assistant"] + [None] * (len(chunks) - 2)
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == TOKENS
    plain = await chunks_of(client)
    assert text_of(plain) == answer_to(ASKED, TOKENS)
    assert all(chunk.usage is None and chunk.choices for chunk in plain)


async def test_streamed_by_the_clients_own_helper(client: Any) -> None:
    """The client's accumulator of streams ends with what comes whole."""
    full = answer_to(ASKED, TOKENS)
    options: dict[str, Any] = {"model": SIMULATED, "messages": question(ASKED), "max_tokens": TOKENS, "n": 2}
    options["stop"] = full[60:66]
    async with client.chat.completions.stream(**options) as stream:
        snapshots = [event async for event in stream if event.type == "content.done"]
        done = await stream.get_final_completion()
    assert [choice.message.content for choice in done.choices] == [full[: full.index(options["stop"])]] * 2
    assert [event.content for event in snapshots] == [full[: full.index(options["stop"])]] * 2


async def test_choices(client: Any) -> None:
    """N choices, each whole, in order; usage counts the prompt once and every answer."""
    done = await client.chat.completions.create(model=SIMULATED, messages=question(ASKED), max_tokens=TOKENS, n=3)
    assert [choice.index for choice in done.choices] == [0, 1, 2]
    assert {choice.message.content for choice in done.choices} == {answer_to(ASKED, TOKENS)}
    assert done.usage is not None
    assert done.usage.completion_tokens == 3 * TOKENS
    assert done.usage.prompt_tokens == len(ids_of_question(ASKED))


@pytest.mark.parametrize("streamed", [False, True])
async def test_stop(client: Any, *, streamed: bool) -> None:
    """A stop string over token borders cuts the text before it, whole and streamed; the earliest of several wins."""
    full = answer_to(ASKED, TOKENS)
    stop = [full[60:66], full[40:46]]
    if streamed:
        chunks = await chunks_of(client, stop=stop)
        text, finish = text_of(chunks), chunks[-1].choices[0].finish_reason
    else:
        options: dict[str, Any] = {"messages": question(ASKED), "max_tokens": TOKENS, "stop": stop}
        choice = (await client.chat.completions.create(model=SIMULATED, **options)).choices[0]
        text, finish = choice.message.content, choice.finish_reason
    assert (text, finish) == (full[: full.index(stop[1])], "stop")


@pytest.mark.parametrize("streamed", [False, True])
async def test_logprobs(client: Any, *, streamed: bool) -> None:
    """An entry a token with its bytes, which make up the text, and as many alternatives as asked for (C15)."""
    options: dict[str, Any] = {"messages": question(ASKED), "max_tokens": TOKENS, "logprobs": True, "top_logprobs": 2}
    if streamed:
        found = [choice for chunk in await chunks_of(client, **options) for choice in chunk.choices]
    else:
        found = (await client.chat.completions.create(model=SIMULATED, **options)).choices
    entries = [entry for choice in found if choice.logprobs for entry in choice.logprobs.content or []]
    assert len(entries) == TOKENS
    assert all(entry.bytes is not None and len(entry.top_logprobs) == 2 for entry in entries)
    together = bytes(byte for entry in entries for byte in entry.bytes or [])
    assert together.decode(errors="replace") == answer_to(ASKED, TOKENS)


async def test_completions(client: Any) -> None:
    """Several prompts, text and ids, with two choices each: all in order, each after its prompt; echo gives it back."""
    prompts = ["the river", "a gate of stone"]
    wanted = [true_text(true_ids(ids_of_text(prompt), 12)) for prompt in prompts]
    done = await client.completions.create(model=SIMULATED, prompt=prompts, max_tokens=12, n=2)
    assert [choice.text for choice in done.choices] == [wanted[0], wanted[0], wanted[1], wanted[1]]
    assert [choice.index for choice in done.choices] == [0, 1, 2, 3]
    assert done.usage is not None
    assert done.usage.completion_tokens == 48
    ids = await client.completions.create(model=SIMULATED, prompt=ids_of_text(prompts[0]), max_tokens=12, echo=True)
    assert ids.choices[0].text == prompts[0] + wanted[0]


async def test_completion_streamed(client: Any) -> None:
    """The whole text in pieces, with integer logprobs in the shape of completions (C12)."""
    stream = await client.completions.create(
        model=SIMULATED, prompt="the river", max_tokens=12, stream=True, logprobs=1
    )
    chunks = [chunk async for chunk in stream]
    pieces = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(piece.text for piece in pieces) == true_text(true_ids(ids_of_text("the river"), 12))
    tokens: list[Any] = [token for piece in pieces if piece.logprobs for token in piece.logprobs.tokens]
    assert len(tokens) == 12
    assert pieces[-1].finish_reason == "length"


async def test_models(client: Any) -> None:
    """The list names what is served; one can be asked for by its name."""
    listed = await client.models.list()
    assert [model.id for model in listed.data] == [SIMULATED]
    assert (await client.models.retrieve(SIMULATED)).id == SIMULATED
