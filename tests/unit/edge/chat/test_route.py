"""`/v1/chat/completions` over HTTP, by the official client and by hand."""

import json
import math
from typing import Any, cast

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion

from broker.chunk import Chunk
from schemas.faults import FAULTS, RequestFault
from tests.unit.edge.scripted import Script, call, entry, events
from tests.unit.edge.serving import CARD, Answer, serving

PATH = "/v1/chat/completions"
USER: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def simple(*texts: str, finish: str = "stop") -> list[Chunk]:
    script = Script()
    return [*(script.next(text) for text in texts), script.next(finish=finish)]


async def post(answer: Answer, **body: Any) -> httpx.Response:
    _, http = serving(answer)
    async with http:
        return await http.post(PATH, json={"messages": USER, **body})


def official(http: httpx.AsyncClient) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url="http://edge/v1", http_client=cast(Any, http), max_retries=0)


async def test_a_whole_answer() -> None:
    """A whole answer, field by field: OpenAI's shape, the model's full name, the usage."""
    reply = await post(simple("Hel", "lo"), model="tiny")
    assert reply.status_code == 200
    answer = reply.json()
    parsed = ChatCompletion.model_validate(answer, strict=True)
    assert parsed.id == f"chatcmpl-{reply.headers['x-request-id']}"
    assert (parsed.model, parsed.object) == (CARD.name, "chat.completion")
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


async def test_a_whole_answer_with_calls_and_thoughts() -> None:
    """Calls and thoughts put together; `content` is null where there is no text, and lists of nothing are left out."""
    script = Script()
    chunks = [
        script.next(reasoning="I ", calls=[]),
        script.next(reasoning="think"),
        script.next(calls=[call(0, '{"a"'), call(1, name="other")]),
        script.next(calls=[call(0, ": 1}"), call(1, "{}", name="other")], finish="tool_calls"),
    ]
    answer = (await post(chunks)).json()
    ChatCompletion.model_validate(answer, strict=True)
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "reasoning": "I think",
        "reasoning_content": "I think",
        "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "lookup", "arguments": '{"a": 1}'}},
            {"id": "call_1", "type": "function", "function": {"name": "other", "arguments": "{}"}},
        ],
    }


async def test_logprobs_of_a_whole_answer() -> None:
    """C15: with no alternatives asked for, `top_logprobs` is an empty list; text and bytes of every token are there."""
    script = Script()
    chunks = [script.next("é", logprobs=[entry("é")]), script.next(finish="stop", logprobs=[])]
    answer = (await post(chunks, logprobs=True, top_logprobs=0)).json()
    ChatCompletion.model_validate(answer, strict=True)
    assert answer["choices"][0]["logprobs"] == {
        "content": [{"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": []}],
        "refusal": None,
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_of_a_message_that_goes_on(stream: bool) -> None:
    """`echo`: the assistant's last message stands before every choice's text, in the stream as in the whole."""
    start = {"role": "assistant", "content": [{"type": "text", "text": "It "}, {"type": "text", "text": "is"}]}
    chunks = [Script(choice).next(f" {choice}", finish="stop") for choice in (0, 1)]
    for messages, echoed in (([*USER, start], "It is"), (USER, "")):
        reply = await post(chunks, messages=messages, echo=True, n=2, stream=stream)
        texts = {0: "", 1: ""}
        for choice in (
            c for each in (events(reply.content)[:-1] if stream else [reply.json()]) for c in each["choices"]
        ):
            texts[choice["index"]] += choice["delta" if stream else "message"].get("content", "")
        assert texts == {0: f"{echoed} 0", 1: f"{echoed} 1"}


@pytest.mark.parametrize("choice", ["none", "auto"])
async def test_ids_of_prompt_and_answer(choice: str) -> None:
    """`return_token_ids`: the prompt's ids are those of the tokenizer service, asked what the model is shown."""
    tool = {"type": "function", "function": {"name": "f"}}
    client, http = serving(simple("a"))
    body = {"messages": USER, "return_token_ids": True, "tools": [tool], "tool_choice": choice, "user": "u"}
    async with http:
        answer = (await http.post(PATH, json={**body, "chat_template_kwargs": {"x": 1}})).json()
    assert answer["prompt_token_ids"] == [1, 2]
    assert answer["choices"][0]["token_ids"] == [0, 1]
    shown = {"model": CARD.name, "messages": USER, "template_options": {"x": 1}}
    assert client.tokenized == [{**shown, "tools": [tool]} if choice == "auto" else shown]


async def test_the_official_client_streams() -> None:
    """`openai`'s own client reads a stream with two choices, thoughts, a call and usage to its end."""
    one, two = Script(0), Script(1)
    chunks = [
        one.next("a\u2028"),
        two.next(reasoning="hm"),
        one.next("b", finish="length"),
        two.next(calls=[call(0, "{}")], finish="tool_calls"),
    ]
    client, http = serving(chunks)
    async with http:
        stream = await official(http).chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hi"}],
            n=2,
            stream=True,
            stream_options={"include_usage": True},
        )
        found = [chunk async for chunk in stream]
    assert client.asked[0]["n"] == 2
    texts = [c.delta.content for each in found for c in each.choices if c.index == 0]
    assert "".join(text or "" for text in texts) == "a\u2028b"
    thoughts = [getattr(c.delta, "reasoning_content", None) for each in found for c in each.choices if c.index == 1]
    assert [text for text in thoughts if text] == ["hm"]
    usage = found[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (7, 4)
    assert client.left == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_a_plain_error(stream: bool) -> None:
    """C3, C12: what preprocess refuses (here n: 0) is a 400 in the envelope before any header of a stream."""
    refusal = RequestFault("invalid_request", "must be between 1 and 16", "n")
    reply = await post([refusal], n=0, stream=stream)
    assert reply.status_code == 400
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", "n", "invalid_request")


@pytest.mark.parametrize("stream", [False, True])
async def test_each_fault_has_its_status(stream: bool) -> None:
    """C5: every fault keeps its status and type, streamed or whole, and names the field as the client wrote it."""
    client, http = serving([])
    async with http:
        for code, policy in FAULTS.items():
            client.answer = [RequestFault(code, "why", "sampling.max_tokens")]
            reply = await http.post(PATH, json={"messages": USER, "stream": stream, "max_completion_tokens": 3})
            assert reply.status_code == policy.http_status
            error = reply.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            told = (error["type"], error["param"], error["code"])
            assert told == (policy.openai_type, "max_completion_tokens", code)
            assert ("retry-after" in reply.headers) == (reply.status_code in (429, 503))


async def test_a_failure_in_the_middle_is_no_end() -> None:
    """C4: three tokens, then a failure: one error object in the envelope, and neither a finish nor the end mark."""
    script = Script()
    steps = [script.next("a"), script.next("b"), script.next("c"), RequestFault("internal", "engine failed")]
    found = events((await post(steps, stream=True)).content)
    assert found[-1] == {
        "error": {"message": "engine failed", "type": "server_error", "param": None, "code": "internal"}
    }
    assert all(c["finish_reason"] is None for each in found[:-1] for c in each["choices"])
    assert "[DONE]" not in found


async def test_the_official_client_raises_for_a_failure_in_the_middle() -> None:
    """C4: `openai`'s client does not take a broken stream for a whole one."""
    _, http = serving([Script().next("a"), RequestFault("internal", "engine failed")])
    async with http:
        stream = await official(http).chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        with pytest.raises(openai.APIError, match="engine failed"):
            _ = [chunk async for chunk in stream]


async def test_an_unknown_model() -> None:
    """C6: 404 with code `model_not_found`, and nothing is sent to anybody."""
    client, http = serving(simple("x"))
    async with http:
        reply = await http.post(PATH, json={"messages": USER, "model": "nope"})
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "model_not_found"
    assert client.asked == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": {}}, "messages"),
    ({"messages": USER, "temperature": "hot"}, "temperature"),
    ({}, "messages"),
    ({"messages": USER, "functions": []}, "functions"),
    ({"messages": USER, "stream_options": {"include": 1}, "stream": True}, "stream_options.include"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]}
            ]
        },
        "messages[0].content[1].type",
    ),
    ({"messages": USER, "stop": ["a", 1]}, "stop[1]"),
    ({"messages": USER, "logit_bias": {"7": "x"}}, "logit_bias.7"),
    ({"messages": USER, "tool_choice": {"type": "function"}, "tools": [{}]}, "tool_choice.function"),
    ({"messages": USER, "top_logprobs": 1}, "top_logprobs"),
]


async def test_a_wrong_body_names_its_field() -> None:
    """C5, B9: never a 422 nor `detail`: the envelope, 400, and the path of the field."""
    client, http = serving(simple("x"))
    async with http:
        for body, param in WRONG:
            reply = await http.post(PATH, json=body)
            assert reply.status_code == 400
            assert list(reply.json()) == ["error"]
            assert reply.json()["error"]["param"] == param
    assert client.asked == []


@pytest.mark.parametrize(
    ("where", "param"),
    [
        ('{"messages": [{"role": "user", "content": "ab\\ud83d"}]}', "messages[0].content"),
        ('{"messages": [{"role": "user", "content": "a", "name": "\\udc00"}]}', "messages[0].name"),
        ('{"messages": [{"role": "user", "content": "a"}], "stop": ["\\ud83d"]}', "stop[0]"),
        ('{"messages": [{"role": "user", "content": "a"}], "tools": [{"x": "\\ud83d"}]}', "tools[0].x"),
    ],
)
async def test_a_lone_surrogate_is_refused(where: str, param: str) -> None:
    """B11: 400 with field and offset before anything is published."""
    client, http = serving(simple("x"))
    async with http:
        reply = await http.post(PATH, content=where, headers={"content-type": "application/json"})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    assert "character" in reply.json()["error"]["message"]
    assert client.asked == []


async def test_a_pair_of_surrogates_is_a_character() -> None:
    """B11: the pair that JSON writes for one character is fine."""
    client, http = serving(simple("x"))
    content = '{"messages": [{"role": "user", "content": "\\ud83d\\ude00"}]}'
    async with http:
        reply = await http.post(PATH, content=content, headers={"content-type": "application/json"})
    assert reply.status_code == 200
    assert client.asked[0]["messages"] == [{"role": "user", "content": "😀"}]


async def test_numbers_that_json_has_not_are_refused() -> None:
    """C5: NaN in a body is no JSON: 400 in the envelope."""
    _, http = serving(simple("x"))
    content = json.dumps({"messages": USER, "temperature": math.nan})
    async with http:
        reply = await http.post(PATH, content=content, headers={"content-type": "application/json"})
    assert reply.status_code == 400
    assert "error" in reply.json()


@pytest.mark.parametrize("name", ["seed", "n", "temperature"])
async def test_numbers_out_of_reach_are_refused(name: str) -> None:
    """C5: a number that no message can carry, or that is none, is a 400 with its field, or reaches preprocess whole."""
    client, http = serving(simple("x"))
    async with http:
        for number in ("1" + "0" * 30, "-1" + "0" * 30, "1" + "0" * 400, "1e400", "1.5", '"1"', "true"):
            content = f'{{"messages": [{{"role": "user", "content": "x"}}], "{name}": {number}}}'
            reply = await http.post(PATH, content=content, headers={"content-type": "application/json"})
            if reply.status_code == 200:
                assert client.asked[-1][name] in (1.5, 1e30, -1e30)
            else:
                assert reply.status_code == 400
                assert "error" in reply.json()


async def test_silence_is_filled_with_comments() -> None:
    """C19: while nothing comes, comment lines do, between events; any reader of events finds the same answer."""
    script = Script()
    _, http = serving([0.3, script.next("a"), 0.3, script.next("b", finish="stop")], keep_alive_s=0.05)
    async with http:
        reply = await http.post(PATH, json={"messages": USER, "stream": True})
    lines = reply.text.split("\n\n")
    comments = [line for line in lines if line.startswith(":")]
    assert len(comments) >= 2
    data = "".join(f"{line}\n\n" for line in lines if line and not line.startswith(":")).encode()
    assert "".join(c["delta"].get("content", "") for e in events(data)[:-1] for c in e["choices"]) == "ab"


async def test_a_normal_end_leaves_nothing() -> None:
    """C9: answers that end are not left early, so nothing is cancelled; one that fails in the reader is."""
    client, http = serving(simple("x"))
    async with http:
        for stream in (False, True):
            await http.post(PATH, json={"messages": USER, "stream": stream})
    assert client.left == []
    assert len(client.asked) == 2


async def test_the_requests_id_and_trace() -> None:
    """The id begins with what `X-Request-Id` says, which is answered as it was; the traceparent goes along."""
    client, http = serving(simple("x"))
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    async with http:
        reply = await http.post(PATH, json={"messages": USER}, headers={"x-request-id": "my id", "traceparent": trace})
    assert reply.headers["x-request-id"] == "my id"
    assert client.asked[0]["request_id"].startswith("my-id-")
    assert client.asked[0]["trace"] == trace
    assert reply.json()["id"] == f"chatcmpl-{client.asked[0]['request_id']}"
