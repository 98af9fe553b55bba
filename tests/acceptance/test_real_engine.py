"""Real processes, the real engine, a real model: what comes out is what the engine alone says."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (transformers leaves most types open)

import asyncio
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from headrace import Chunk, Completion, Headrace, RequestFault
from load.pipeline import Pipeline
from stages.inference.bundled_model import bundled_model_path
from tests.acceptance.real_engine import RealEngine, near_tie

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(240)]

EMOJI = "I love you 😍😍😍 happy birthday 🎉🎉🎉🎉🎉"

QUESTIONS = [
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "Write a haiku about rivers.",
    "What is 2 + 2?",
]

TOPICS = ["rivers", "bread", "the moon", "chess", "trains", "snow", "bees", "violins"]
BATCH = [f"Tell me about {topic} in {words} words." for topic in TOPICS for words in (10, 20, 30, 40)]


def chat(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


@dataclass(frozen=True)
class Reference:
    """The engine's own answer. `margins[i]` is the logprob of the chosen id less that of the second candidate."""

    prompt: list[int]
    ids: list[int]
    text: str
    margins: list[float]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def alone(engine: RealEngine) -> dict[str, Reference]:
    """The engine alone on every prompt of this module, one after the other.

    Prompts are rendered and encoded by transformers itself, ids are decoded in one piece.
    """
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(bundled_model_path()))
    limits = {**dict.fromkeys(QUESTIONS, 40), **dict.fromkeys(BATCH, 16), EMOJI: 24}
    return {text: await refer(engine, tokenizer, text, limit) for text, limit in limits.items()}


async def refer(engine: RealEngine, tokenizer: Any, text: str, limit: int) -> Reference:
    rendered = text
    if text != EMOJI:
        rendered = tokenizer.apply_chat_template(chat(text), add_generation_prompt=True, tokenize=False)
    prompt = tokenizer.encode(rendered, add_special_tokens=False)
    (answer,) = await engine.run(engine.request(f"alone/{text}", prompt, max_tokens=limit, logprobs=2))
    return Reference(prompt, answer.ids, tokenizer.decode(answer.ids, skip_special_tokens=True), answer.margins)


@pytest.fixture
def pipeline(alone: dict[str, Reference], real: Pipeline) -> Pipeline:
    """The pipeline with the real engine, started after the reference was made: one engine computes at a time."""
    return real


async def streamed(client: Headrace, **options: Any) -> list[Chunk]:
    return [chunk async for chunk in client.stream(temperature=0.0, **options)]


async def test_one_after_the_other(pipeline: Pipeline, alone: dict[str, Reference]) -> None:
    """Sequential requests, streamed and whole, give exactly the engine's own ids and text."""
    async with Headrace(pipeline.url) as client:
        for text in QUESTIONS:
            chunks = await streamed(client, messages=chat(text), max_tokens=40)
            whole = await client.complete(messages=chat(text), max_tokens=40, temperature=0.0)
            assert [token for chunk in chunks for token in chunk.ids] == alone[text].ids
            assert "".join(chunk.text for chunk in chunks) == alone[text].text
            assert len(chunks) > 3, "streamed, not whole"
            assert whole.text == alone[text].text
            usage = whole.choices[0].usage
            assert usage is not None
            assert usage.prompt_tokens == len(alone[text].prompt)
            assert usage.completion_tokens == len(alone[text].ids)


async def test_it_answers(pipeline: Pipeline) -> None:
    """The model knows the capital of France."""
    async with Headrace(pipeline.url) as client:
        done = await client.complete(messages=chat(QUESTIONS[0]), max_tokens=32, temperature=0.0)
    assert "Paris" in done.text


async def test_32_at_once(pipeline: Pipeline, alone: dict[str, Reference]) -> None:
    """32 requests in one batch give the engine's own ids, exactly or up to a near tie, which is reported."""
    async with Headrace(pipeline.url) as client:
        done = await asyncio.gather(
            *(client.complete(messages=chat(text), max_tokens=16, temperature=0.0) for text in BATCH)
        )
    ties = [found for text, answer in zip(BATCH, done, strict=True) if (found := tie(alone[text], answer))]
    if ties:
        warnings.warn("near ties: " + "; ".join(ties), stacklevel=1)
    assert len(ties) < len(BATCH) / 2


def tie(reference: Reference, answer: Completion) -> str:
    """As `near_tie`; the text is the right one where the ids are."""
    found = near_tie(reference.ids, reference.margins, answer.choices[0].ids)
    assert found or answer.text == reference.text
    return found


async def test_two_choices(pipeline: Pipeline, alone: dict[str, Reference]) -> None:
    """N = 2 with temperature 0 gives the same answer twice, each choice with its own end."""
    text = QUESTIONS[0]
    async with Headrace(pipeline.url) as client:
        done = await client.complete(messages=chat(text), max_tokens=40, temperature=0.0, n=2)
    assert [choice.ids for choice in done.choices] == [alone[text].ids] * 2
    assert all(choice.finish for choice in done.choices)


async def test_stop_string_over_token_borders(pipeline: Pipeline, alone: dict[str, Reference]) -> None:
    """A stop string that begins and ends inside tokens cuts the text right before it, and the rest is not generated."""
    full = alone[QUESTIONS[1]].text
    middle = len(full) // 2
    stop = full[middle - 3 : middle + 4]
    async with Headrace(pipeline.url) as client:
        chunks = await streamed(client, messages=chat(QUESTIONS[1]), max_tokens=40, stop=stop)
    assert "".join(chunk.text for chunk in chunks) == full[: full.index(stop)]
    assert (chunks[-1].finish, chunks[-1].stop_reason) == ("stop", stop)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens < len(alone[QUESTIONS[1]].ids)


async def test_emoji_over_token_borders(pipeline: Pipeline, alone: dict[str, Reference]) -> None:
    """An emoji whose bytes come in several tokens is one character in one chunk, never half of one."""
    async with Headrace(pipeline.url) as client:
        chunks = await streamed(client, prompt=EMOJI, max_tokens=24)
    text = "".join(chunk.text for chunk in chunks)
    assert text == alone[EMOJI].text
    assert "🎉" in text
    assert not any("\ufffd" in chunk.text for chunk in chunks)


@pytest.mark.parametrize(
    ("options", "code", "param"),
    [
        ({"messages": chat("x"), "model": "no-such-model"}, "model_not_found", "model"),
        ({"messages": []}, "invalid_request", "messages"),
        ({"prompt": "long " * 9000}, "context_length_exceeded", "prompt"),
        ({"messages": chat("x"), "top_p": 7.0}, "invalid_request", "sampling.top_p"),
        ({"messages": chat("x"), "max_tokens": 0}, "invalid_request", "sampling.max_tokens"),
    ],
)
async def test_faults(pipeline: Pipeline, options: dict[str, Any], code: str, param: str) -> None:
    """Each wrong request ends in one terminal fault that names its field."""
    async with Headrace(pipeline.url) as client:
        with pytest.raises(RequestFault) as raised:
            await asyncio.wait_for(client.complete(**options), 20)
    assert (raised.value.fault.code, raised.value.fault.param) == (code, param)


def test_ask(pipeline: Pipeline, tmp_path: Path) -> None:
    """`headrace ask` streams the answer to standard output and ends with 0; `attach` finds it again by its id."""
    done = pipeline.run("ask", QUESTIONS[0], "--temperature", "0", "--max-tokens", "32", "--id", "asked-1")
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert "request asked-1" in done.stderr
    again = pipeline.run("attach", "default.asked-1")
    assert (again.returncode, again.stdout) == (0, done.stdout)
