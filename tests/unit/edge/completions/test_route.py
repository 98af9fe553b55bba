"""`/v1/completions` over HTTP, by the official client and by hand."""

from typing import Any, cast

import openai
import pytest
from openai.types import Completion

from schemas.faults import RequestFault
from tests.unit.edge.scripted import Script, entry, events
from tests.unit.edge.serving import CARD, Step, serving

PATH = "/v1/completions"


def spelled(asked: dict[str, Any]) -> list[Step]:
    """Each choice says its prompt again."""
    return [
        step
        for choice in range(asked.get("n", 1))
        for script in [Script(choice)]
        for step in (script.next(f"<{asked['prompt']}>"), script.next(finish="length"))
    ]


async def test_a_whole_answer() -> None:
    """A whole answer, field by field, as the official client reads it."""
    _, http = serving(spelled)
    async with http:
        reply = await http.post(PATH, json={"prompt": "a", "model": "tiny"})
    answer = reply.json()
    parsed = Completion.model_validate(answer, strict=True)
    assert parsed.id == f"cmpl-{reply.headers['x-request-id']}"
    assert (parsed.model, parsed.object) == (CARD.name, "text_completion")
    assert answer["choices"] == [
        {"index": 0, "text": "<a>", "logprobs": None, "finish_reason": "length", "stop_reason": None}
    ]
    assert answer["usage"]["total_tokens"] == 9


@pytest.mark.parametrize("stream", [False, True])
async def test_several_prompts_are_one_answer(stream: bool) -> None:
    """Each prompt is a request with an id of its own; their choices are numbered through, the usage is of all."""
    client, http = serving(spelled)
    body = {"prompt": ["a", "b"], "n": 2, "stream": stream}
    async with http:
        reply = await http.post(PATH, json={**body, **({"stream_options": {"include_usage": True}} if stream else {})})
    found = events(reply.content)[:-1] if stream else [reply.json()]
    texts: dict[int, str] = {}
    for choice in (c for each in found for c in each["choices"]):
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == {0: "<a>", 1: "<a>", 2: "<b>", 3: "<b>"}
    assert found[-1]["usage"]["prompt_tokens"] == 14
    assert found[-1]["usage"]["completion_tokens"] == 8
    assert len({asked["request_id"] for asked in client.asked}) == 2
    assert client.left == []


@pytest.mark.parametrize("stream", [False, True])
async def test_one_fault_cancels_the_other_prompts(stream: bool) -> None:
    """A fault of one prompt is the answer, named by its place; what runs for the others is left, so cancelled."""

    def steps(asked: dict[str, Any]) -> list[Step]:
        return [RequestFault("invalid_request", "no", "prompt")] if asked["prompt"] == "bad" else [60.0]

    client, http = serving(steps)
    async with http:
        reply = await http.post(PATH, json={"prompt": ["a", "bad"], "stream": stream})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "prompt[1]"
    assert client.left == [client.asked[0]["request_id"]]


async def test_echo_of_ids_is_their_text() -> None:
    """`echo`: text prompts come back as they were, ids as the model's tokenizer reads them."""
    _, http = serving(lambda _: [Script().next("!", finish="stop")])
    async with http:
        for prompt, texts in (("hé", ["hé!"]), ([104, 105], ["hi!"]), ([[104], [105]], ["h!", "i!"])):
            answer = (await http.post(PATH, json={"prompt": prompt, "echo": True})).json()
            assert [choice["text"] for choice in answer["choices"]] == texts


async def test_ids_of_the_prompts() -> None:
    """`return_token_ids`: ids of a prompt of ids are its own, those of a text the tokenizer service's."""
    client, http = serving(lambda _: [Script().next("!", finish="stop")])
    async with http:
        for prompt, ids in (("hé", [[1, 2]]), ([[104], [105]], [[104], [105]])):
            answer = (await http.post(PATH, json={"prompt": prompt, "return_token_ids": True})).json()
            assert [choice["prompt_token_ids"] for choice in answer["choices"]] == ids
            assert {tuple(choice["token_ids"]) for choice in answer["choices"]} == {(0,)}
    assert client.tokenized == [{"model": CARD.name, "prompt": "hé"}]


async def test_the_official_client_streams() -> None:
    """`openai`'s own client reads a stream with integer logprobs to its end."""
    script = Script()
    chunks = [script.next("a", logprobs=[entry("a", -0.5, [("a", -0.5)])]), script.next("b", finish="stop")]
    _, http = serving(chunks)
    client = openai.AsyncOpenAI(api_key="none", base_url="http://edge/v1", http_client=cast(Any, http), max_retries=0)
    async with http:
        stream = await client.completions.create(model="tiny", prompt="x", logprobs=1, stream=True)
        found = [chunk async for chunk in stream]
    assert "".join(each.choices[0].text for each in found) == "ab"
    assert found[0].choices[0].logprobs is not None
    assert found[0].choices[0].logprobs.top_logprobs == [{"a": -0.5}]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": "x", "logprobs": True}, "logprobs"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "tools": []}, "tools"),
    ],
)
async def test_a_wrong_body_names_its_field(body: dict[str, Any], param: str) -> None:
    """C5: always 400 in the envelope, with the path of the field."""
    client, http = serving(spelled)
    async with http:
        reply = await http.post(PATH, json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    assert client.asked == []


async def test_a_failure_in_the_middle_is_no_end() -> None:
    """C4: one error object in the envelope, no finish, no end mark."""
    _, http = serving([Script().next("a"), RequestFault("poison", "three workers died")])
    async with http:
        found = events((await http.post(PATH, json={"prompt": "x", "stream": True})).content)
    assert found[-1]["error"]["code"] == "poison"
    assert found[-2]["choices"][0]["finish_reason"] is None
