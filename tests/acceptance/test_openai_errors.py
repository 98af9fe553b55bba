"""The official client against the edge: each error is the exception that the client has for it, with its field."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from load.pipeline import Pipeline
from tests.acceptance.openai_clients import SIMULATED, answer_to, edge_beside, openai_at, question

pytestmark = pytest.mark.timeout(120)

CHAT: dict[str, Any] = {"model": SIMULATED, "messages": question("x"), "max_tokens": 5}


@pytest_asyncio.fixture
async def client(edges: Pipeline) -> AsyncIterator[Any]:
    async with openai_at(edges.api_url) as client:
        yield client


def new_key(pipeline: Pipeline, file: Path, *options: str) -> str:
    """What `headrace keys new` prints."""
    done = pipeline.run("keys", "new", "--file", str(file), *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": -1}, "temperature", "invalid_request"),
    ({"extra_body": {"temperature": "hot"}}, "temperature", "invalid_request"),
    ({"n": 0}, "n", "invalid_request"),
    ({"top_p": 7}, "top_p", "invalid_request"),
    ({"max_tokens": 0}, "max_tokens", "invalid_request"),
    ({"max_tokens": None, "max_completion_tokens": -1}, "max_completion_tokens", "invalid_request"),
    ({"max_tokens": 100_000}, "max_tokens", "context_length_exceeded"),
    ({"messages": []}, "messages", "invalid_request"),
    ({"extra_body": {"messages": {"role": "user"}}}, "messages", "invalid_request"),
    ({"stop": ""}, "stop", "invalid_request"),
    ({"logit_bias": {"99999999": 1}}, "logit_bias.99999999", "invalid_request"),
    ({"extra_body": {"no_such_thing": 1}}, "no_such_thing", "unknown_parameter"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "tools", "unsupported"),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("options", "param", "code"), WRONG)
async def test_bad_requests(client: Any, options: dict[str, Any], param: str, code: str, *, streamed: bool) -> None:
    """400 as plain JSON, before any event of a stream (C3, C5, B6, B15, F12), naming the client's own field."""
    with pytest.raises(openai.BadRequestError) as raised:
        await client.chat.completions.create(**{**CHAT, **options, "stream": streamed})
    assert (raised.value.param, raised.value.code) == (param, code)
    assert raised.value.type == "invalid_request_error"
    assert raised.value.response.headers["content-type"] == "application/json"


async def test_half_a_character(edges: Pipeline) -> None:
    """A lone surrogate, which the official client cannot even send, is a 400 with its place (B11); a pair is fine."""
    async with httpx.AsyncClient(timeout=30) as client:
        for escape, status in (("\\ud83d", 400), ("\\ud83d\\ude00", 200)):
            body = json.dumps({**CHAT, "messages": question("HERE")}).replace("HERE", f"ab{escape}")
            headers = {"Content-Type": "application/json"}
            answer = await client.post(f"{edges.api_url}/chat/completions", content=body, headers=headers)
            assert answer.status_code == status
            if status == 400:
                assert answer.json()["error"]["param"] == "messages[0].content"


async def test_not_found(client: Any) -> None:
    """An unknown model is 404 with `model_not_found` (C6), everywhere; an unknown route has the envelope too (C5)."""
    with pytest.raises(openai.NotFoundError) as raised:
        await client.chat.completions.create(**{**CHAT, "model": "nope"})
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="nope", input="x")
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nope")
    with pytest.raises(openai.NotFoundError) as raised:
        await client.post("/nothing", body={}, cast_to=httpx.Response)
    assert raised.value.type == "invalid_request_error"


async def test_embeddings_are_refused(client: Any) -> None:
    """A clear error: no engine here serves them."""
    with pytest.raises((openai.NotFoundError, openai.BadRequestError)) as raised:
        await client.embeddings.create(model=SIMULATED, input="x")
    assert "embedding" in raised.value.message


async def test_keys_and_limits(edges: Pipeline, tmp_path: Path) -> None:
    """Without a key, or with a wrong one: AuthenticationError. Beyond the key's limit: RateLimitError with Retry-After,
    and room again once the other request has ended.
    """
    keys = tmp_path / "keys.toml"
    key = await asyncio.to_thread(new_key, edges, keys, "--name", "alice", "--concurrent", "1")
    async with edge_beside(edges, keys_file=str(keys)) as edge:
        async with openai_at(edge.url, api_key="hr-wrong") as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.chat.completions.create(**CHAT)
        async with openai_at(edge.url, api_key=key) as alice:
            long: dict[str, Any] = {**CHAT, "max_tokens": 5000, "stream": True}
            stream = await alice.chat.completions.create(**long)
            await anext(stream)
            with pytest.raises(openai.RateLimitError) as raised:
                await alice.chat.completions.create(**CHAT)
            assert int(raised.value.response.headers["retry-after"]) >= 1
            await stream.close()
            async with openai_at(edge.url, api_key=key, max_retries=8) as patient:
                done = await patient.chat.completions.create(**CHAT)
            assert done.choices[0].message.content == answer_to("x", 5)
