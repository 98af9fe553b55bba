"""The app as a whole: errors in one form, ids and headers, the document that describes it."""

import asyncio
import gc
import re
from typing import Any, cast

import httpx
import pytest
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from schemas.faults import FAULTS, Fault, FaultCode, RequestFault
from stages.edge.access.doorkeeper import Doorkeeper
from stages.edge.app import create_app
from stages.edge.chat.body import ChatBody
from stages.edge.gateway import Gateway
from stages.edge.http.body import JsonRequest
from stages.edge.http.errors import ApiError, api_error_of
from stages.edge.http.failures import validation_error
from stages.edge.http.headers import echoed_id_of, request_id_of
from stages.edge.responses.asking import api_error
from tests.unit.edge.scripted import Script
from tests.unit.edge.serving import serving
from tests.unit.edge.wire import scope

CHAT = "/v1/chat/completions"
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}

ENVELOPE = {"message", "type", "param", "code"}


def error_in(answer: httpx.Response) -> dict[str, Any]:
    """What is in the envelope; nothing else may be there."""
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == ENVELOPE
    assert answer.headers["content-type"] == "application/json"
    return answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/models/", 404, "model_not_found"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/embeddings", 400, "unsupported"),
        ("POST", "/tokenize", 415, "unsupported_media_type"),
    ],
)
async def test_every_error_has_the_envelope(method: str, path: str, status: int, code: str) -> None:
    """C5: the router's own errors too; nothing is redirected."""
    _, client = serving([])
    async with client:
        answer = await client.request(method, path)
    assert answer.status_code == status
    assert error_in(answer)["code"] == code
    if status == 405:
        assert answer.headers["allow"]


@pytest.mark.parametrize("code", FAULTS)
async def test_every_fault_has_its_status_and_code(code: FaultCode) -> None:
    """C5, C6: as the one table says; what may be tried again says when, a full queue by its own reckoning (C20)."""
    client, http = serving([])

    async def refuse(*_: Any, **__: Any) -> str:
        raise RequestFault(code, "no", "sampling.top_p")

    client.detokenize = refuse
    async with http:
        answer = await http.post("/detokenize", json={"tokens": [1]})
    policy = FAULTS[code]
    assert answer.status_code == policy.http_status
    expected = {"message": "top_p: no", "type": policy.openai_type, "param": "top_p", "code": code}
    assert error_in(answer) == expected
    assert answer.headers.get("retry-after") == {"busy": "7", "unavailable": "2"}.get(code)


@pytest.mark.parametrize(("retry_after", "expected"), [(0.0, "7"), (0.2, "1"), (12.1, "13"), (340.0, "60")])
async def test_a_fault_may_say_itself_when_to_come_again(retry_after: float, expected: str) -> None:
    """Rounded up, from 1 to 60; where it does not know, the queue's own reckoning."""
    _, client = serving([RequestFault("busy", "much waits", retry_after=retry_after)])
    async with client:
        answer = await client.post(CHAT, json=ASKED)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, expected)
    if retry_after:
        assert api_error(Fault("busy", "", retry_after=retry_after)).headers == {"Retry-After": expected}


async def test_what_nobody_foresaw_is_a_500_that_says_nothing() -> None:
    """The client learns no internals; the log has them, with the request's id."""
    client, http = serving([])

    async def fail(*_: Any, **__: Any) -> str:
        raise KeyError("secret prompt")

    client.detokenize = fail
    async with http:
        answer = await http.post("/detokenize", json={"tokens": [1]}, headers={"x-request-id": "abc"})
    assert answer.status_code == 500
    assert error_in(answer) == {"message": "internal error", "type": "server_error", "param": None, "code": "internal"}
    assert answer.headers["x-request-id"] == "abc"


async def test_a_body_over_the_limit_is_a_413() -> None:
    """B19: the limit of the app; the connection ends, since nobody reads the rest."""
    _, client = serving([])
    async with client:
        answer = await client.post("/detokenize", json={"tokens": [1] * 60_000})
    assert answer.status_code == 413
    assert error_in(answer)["code"] == "too_large"
    assert answer.headers["connection"] == "close"


async def test_who_has_no_key_is_refused_before_the_body_is_read() -> None:
    """401 for everything but what machines look at."""

    class NoKeys:
        def caller_of(self, key: str) -> None:
            return None

    _, plain = serving([])
    app = cast("Any", plain)._transport.app
    app.state.gateway.doorkeeper = Doorkeeper(NoKeys())
    async with plain as client:
        refused = [
            await client.post("/detokenize", content=b"{bad", headers={"content-type": "application/json"}),
            await client.get("/v1/models"),
            await client.post("/v1/embeddings", json={}),
            await client.post("/v1/chat/completions", json={}),
        ]
        live = await client.get("/live")
    assert [each.status_code for each in refused] == [401] * 4
    assert {error_in(each)["type"] for each in refused} == {"authentication_error"}
    assert live.status_code == 200


def connection(**headers: str) -> HTTPConnection:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTPConnection({**scope(), "headers": Headers(named).raw})


@pytest.mark.parametrize(
    ("given", "pattern"),
    [
        ("", r"[0-9a-f]{24}"),
        ("trace-7", r"trace-7-[0-9a-f]{8}"),
        ("a.b*c>d e", r"a-b-c-d-e-[0-9a-f]{8}"),
        ("x" * 300, r"x{40}-[0-9a-f]{8}"),
        ("...", r"[0-9a-f]{24}"),
    ],
)
def test_a_client_s_id_only_begins_ours(given: str, pattern: str) -> None:
    """Proxies use one for several requests: two never get one answer. What cannot stand in a subject is gone."""
    first, second = connection(x_request_id=given), connection(x_request_id=given)
    assert re.fullmatch(pattern, request_id_of(first))
    assert request_id_of(first) == request_id_of(first) != request_id_of(second)


@pytest.mark.parametrize(("given", "echoed"), [("a.b*c d", True), ("x" * 300, False), ("é", False), ("", False)])
def test_the_header_comes_back_as_it_was(given: str, echoed: bool) -> None:
    """So that a client finds its own; else it gets ours."""
    asked = connection(x_request_id=given)
    assert echoed_id_of(asked) == (given if echoed else request_id_of(asked))


@pytest.mark.parametrize(
    ("param", "renames", "expected"),
    [
        ("sampling.top_p", {}, "top_p"),
        ("sampling.logit_bias.7", {}, "logit_bias.7"),
        ("sampling.max_tokens", {"max_tokens": "max_completion_tokens"}, "max_completion_tokens"),
        ("sampling.max_tokens", {"sampling.max_tokens": "max_output_tokens"}, "max_output_tokens"),
        ("template_options.a.b", {}, "chat_template_kwargs.a.b"),
        ("include_stop", {}, "include_stop_str_in_output"),
        ("messages[1].content[0]", {}, "messages[1].content[0]"),
        ("messages[1].content", {"messages": "input"}, "input[1].content"),
        ("messages_like", {"messages": "input"}, "messages_like"),
        ("", {}, None),
    ],
)
def test_fields_are_named_as_the_client_wrote_them(param: str, renames: dict[str, str], expected: str | None) -> None:
    """Whatever they are called in our messages."""
    error = api_error_of(RequestFault("invalid_request", "no", param), renames)
    assert error.body["error"]["param"] == expected


def test_a_union_s_branches_are_no_part_of_the_path() -> None:
    """Pydantic names them, a client would look for them in vain; the branch that got furthest says most."""
    errors = [
        {"type": "string_type", "loc": ("body", "messages", 0, "content", "str"), "msg": "Input should be a string"},
        {
            "type": "missing",
            "loc": ("body", "messages", 0, "content", "list[Part]", 1, "TextPart", "text"),
            "msg": "Field required",
        },
    ]
    body = {"messages": [{"content": [{"type": "text", "text": "a"}, {"type": "text"}]}]}
    error = validation_error(errors, body)
    assert (error.param, error.message) == ("messages[0].content[1].text", "messages[0].content[1].text: is required")


def test_an_envelope_can_always_be_sent() -> None:
    """A message that quotes what is no Unicode."""
    assert b"?" in bytes(ApiError(400, "a \ud83d b", param="x\ud83d").response().body)


def test_the_document_says_what_is_answered() -> None:
    """No 422, every error with the envelope, security for what needs a key, where there are keys."""
    _, client = serving([], keys_file="keys.toml")
    document = cast("Any", client)._transport.app.openapi()
    operations = [(path, operation) for path, methods in document["paths"].items() for operation in methods.values()]
    assert {path for path, _ in operations} >= {"/v1/models", "/v1/models/{model}", "/tokenize", "/live", "/ready"}
    for path, operation in operations:
        answers = operation["responses"]
        assert "422" not in answers
        for status, answer in answers.items():
            if status >= "400":
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorEnvelope"}, (path, status)
        if path.startswith("/v1/") or "tokenize" in path:
            assert operation["security"], path
            assert {"400", "401", "429", "500", "503"} <= set(answers), path
    assert "HTTPValidationError" not in document["components"]["schemas"]
    _, open_to_all = serving([])
    document = cast("Any", open_to_all)._transport.app.openapi()
    assert not any("security" in operation for methods in document["paths"].values() for operation in methods.values())


async def test_a_page_of_another_origin_may_ask_only_where_that_is_set() -> None:
    """CORS is off by default; with origins their scripts may read errors too."""
    asks = {"origin": "https://chat.example.com"}
    _, closed = serving([])
    _, open_ = serving([], cors_origins=("https://chat.example.com",))
    async with closed, open_:
        assert "access-control-allow-origin" not in (await closed.get("/live", headers=asks)).headers
        answer = await open_.get("/v1/nothing", headers=asks)
        assert answer.headers["access-control-allow-origin"] == "https://chat.example.com"
        other = await open_.get("/live", headers={"origin": "https://evil.example.com"})
        assert "access-control-allow-origin" not in other.headers


async def test_a_stream_has_the_headers_of_every_layer() -> None:
    """CORS and the request's id too, although a stream outlives the layers that put them there."""
    _, http = serving([Script().next("a", finish="stop")], cors_origins=("*",))
    async with http:
        headers = {"origin": "https://chat.example.com", "x-request-id": "abc"}
        answer = await http.post(CHAT, json={**ASKED, "stream": True}, headers=headers)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["x-request-id"].startswith("abc")
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_a_stream_that_waits_holds_nothing_of_its_request() -> None:
    """Neither the body, which may be megabytes, nor the parts of the framework that read it."""
    script = Script()
    _, http = serving([script.next("a"), 0.5, script.next("b", finish="stop")])
    kept: list[str] = []

    def look() -> None:
        gc.collect()
        kept.extend(type(each).__name__ for each in gc.get_objects() if isinstance(each, (JsonRequest, ChatBody)))

    async with http:
        asyncio.get_running_loop().call_later(0.25, look)
        answer = await http.post(CHAT, json={**ASKED, "stream": True})
        assert answer.text.endswith("data: [DONE]\n\n")
        assert not kept


async def test_metrics_say_routes_and_statuses() -> None:
    """By the route's pattern, never by the path that somebody typed; who is gone counts as 499."""
    _, client = serving([])
    async with client:
        await client.get("/v1/models/some-name")
        await client.get("/v1/whatever/somebody/types")
        text = (await client.get("/metrics")).text
        assert 'route="/v1/models/{model:path}",stage="edge",status="404"' in text
        assert 'route="unknown",stage="edge",status="404"' in text
        assert "somebody" not in text
    _, hidden = serving([], metrics=False)
    async with hidden:
        assert (await hidden.get("/metrics")).status_code == 404


def test_app_has_the_gateway() -> None:
    """Where dependencies look for it."""
    _, client = serving([])
    gateway = cast("Any", client)._transport.app.state.gateway
    assert create_app(cast("Gateway", gateway), max_body_bytes=1).state.gateway is gateway


async def test_the_document_is_served_and_its_page_can_be_turned_off() -> None:
    """`/openapi.json` always, `/docs` unless the setting says no."""
    _, client = serving([])
    _, plain = serving([], docs=False)
    async with client, plain:
        assert "/v1/chat/completions" in (await client.get("/openapi.json")).json()["paths"]
        assert "/openapi.json" in (await client.get("/docs")).text
        assert (await plain.get("/openapi.json")).status_code == 200
        assert (await plain.get("/docs")).status_code == 404
