"""`Idempotency-Key`: one answer for all calls with it, at any edge, for every endpoint that generates."""

import asyncio
import hashlib
import itertools
from collections.abc import Awaitable, Callable

import httpx
import msgspec
import openai
import pytest

from broker.kept_requests import KeptRequests
from broker.publisher import Publisher
from schemas.faults import Fault
from schemas.kept_request import KeptRequest
from stages.edge.http.headers import claim_name, repeated_id
from tests.integration.edge.responses.conftest import LIMITS, SHARED, Scene
from tests.integration.edge.responses.stand_in import Asked, StandIn

pytestmark = SHARED

Call = Callable[..., Awaitable[str]]

_NUMBERS = itertools.count()


async def chat(client: openai.AsyncOpenAI, key: str, text: str = "Hello", model: str = "m") -> str:
    answer = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], extra_headers={"Idempotency-Key": key}
    )
    return str(answer.choices[0].message.content)


async def completion(client: openai.AsyncOpenAI, key: str, text: str = "Hello", model: str = "m") -> str:
    answer = await client.completions.create(model=model, prompt=text, extra_headers={"Idempotency-Key": key})
    return answer.choices[0].text


async def response(client: openai.AsyncOpenAI, key: str, text: str = "Hello", model: str = "m") -> str:
    answer = await client.responses.create(model=model, input=text, extra_headers={"Idempotency-Key": key})
    return answer.output_text


ALL: tuple[Call, ...] = (chat, completion, response)

CALLS = pytest.mark.parametrize("call", ALL)


@pytest.fixture
def key() -> str:
    """One that was never used."""
    return f"key {next(_NUMBERS)}"


@CALLS
async def test_a_repeated_call_gets_the_same_answer(
    client: openai.AsyncOpenAI, other: openai.AsyncOpenAI, stand_in: StandIn, call: Call, key: str
) -> None:
    """At once at two edges, again while it runs, and after its end: one request, one answer."""
    calls = [asyncio.ensure_future(call(each, key)) for each in (client, other, client)]
    asked = await stand_in.next()
    await asked.say("Par")
    calls.append(asyncio.ensure_future(call(other, key)))
    await asked.say("is.", finish="stop")
    assert await asyncio.gather(*calls) == ["Paris."] * 4
    assert await call(other, key) == "Paris."
    assert len(stand_in.asked) == 1


@CALLS
async def test_another_body_is_refused(client: openai.AsyncOpenAI, stand_in: StandIn, call: Call, key: str) -> None:
    """The same key with another body, or at another endpoint, is 409 and reaches nobody; other keys are other calls."""

    async def answer(asked: Asked) -> None:
        await asked.say("yes", finish="stop")

    stand_in.on_request = answer
    assert await call(client, key) == "yes"
    for another, text in [(call, "Other"), *((each, "Hello") for each in ALL if each is not call)]:
        with pytest.raises(openai.ConflictError) as raised:
            await another(client, key, text)
        assert raised.value.code == "idempotency_key_reused"
    assert len(stand_in.asked) == 1
    assert await call(client, f"{key} too", "Other") == "yes"


@CALLS
async def test_a_client_that_comes_back(client: openai.AsyncOpenAI, stand_in: StandIn, call: Call, key: str) -> None:
    """A call with a key goes on when its client is gone: that is what the key is for."""
    lost = asyncio.ensure_future(call(client, key))
    asked = await stand_in.next()
    await asked.say("still ")
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)
    again = asyncio.ensure_future(call(client, key))
    await asked.say("here", finish="stop")
    assert await again == "still here"
    assert not asked.cancelled.is_set()


@CALLS
async def test_a_fault_is_the_same_again(client: openai.AsyncOpenAI, stand_in: StandIn, call: Call, key: str) -> None:
    """What was refused once is refused again, without another request."""

    async def refuse(asked: Asked) -> None:
        await asked.fail(Fault("context_length_exceeded", "too long"))

    stand_in.on_request = refuse
    for _ in range(2):
        with pytest.raises(openai.BadRequestError, match="too long"):
            await call(client, key)
    assert len(stand_in.asked) == 1


@CALLS
async def test_a_refused_call_may_be_corrected(
    client: openai.AsyncOpenAI, other: openai.AsyncOpenAI, stand_in: StandIn, call: Call, key: str
) -> None:
    """A refusal leaves the key to the corrected call, at any edge and for good: then it means that one alone."""

    async def refuse_the_long(asked: Asked) -> None:
        if b"long" in msgspec.json.encode(asked.request):
            await asked.fail(Fault("context_length_exceeded", "too long"))
        else:
            await asked.say("yes", finish="stop")

    stand_in.on_request = refuse_the_long
    with pytest.raises(openai.BadRequestError, match="too long"):
        await call(client, key, "a long text")
    assert await call(other, key, "short") == "yes"
    assert await call(client, key, "short") == "yes"
    for text in ("other", "a long text"):
        with pytest.raises(openai.ConflictError):
            await call(other, key, text)
    assert len(stand_in.asked) == 2


@CALLS
async def test_a_forgotten_key_never_brings_another_answer(
    scene: Scene, client: openai.AsyncOpenAI, stand_in: StandIn, call: Call, key: str
) -> None:
    """What was kept of the first call was pushed out: another body is another request then, not the first answer."""

    async def answer(asked: Asked) -> None:
        await asked.say(f"answer {len(stand_in.asked)}", finish="stop")

    stand_in.on_request = answer
    assert await call(client, key) == "answer 1"
    await KeptRequests(scene.connection, "default").remove(claim_name(key))
    assert await call(client, key, "Other") == "answer 2"


async def test_another_number_of_prompts_is_another_body(
    client: openai.AsyncOpenAI, stand_in: StandIn, key: str
) -> None:
    """One key, one meaning: it is kept for the call, not for each of its prompts."""

    async def answer(asked: Asked) -> None:
        await asked.say("yes", finish="stop")

    stand_in.on_request = answer
    assert await completion(client, key) == "yes"
    with pytest.raises(openai.ConflictError):
        await client.completions.create(model="m", prompt=["a", "b"], extra_headers={"Idempotency-Key": key})


async def test_another_tenant_has_keys_of_its_own(
    client: openai.AsyncOpenAI, stranger: openai.AsyncOpenAI, stand_in: StandIn, key: str
) -> None:
    """The same key of two tenants means two calls."""

    async def answer(asked: Asked) -> None:
        await asked.say(asked.tenant, finish="stop")

    stand_in.on_request = answer
    assert [await chat(each, key) for each in (client, stranger, client)] == ["default", "stranger", "default"]


async def test_an_edge_that_died_before_it_submitted(
    scene: Scene, client: openai.AsyncOpenAI, stand_in: StandIn, key: str
) -> None:
    """It had kept what the call says, and then died: the repeated call is the first that Headrace hears of."""
    body = b'{"model": "m", "prompt": "Hello"}'
    kept = KeptRequest(endpoint="/v1/completions", created_at=1, digest=hashlib.sha256(body).hexdigest())
    await KeptRequests(scene.connection, "default").put_first(claim_name(key), kept)

    async def answer(asked: Asked) -> None:
        await asked.say("yes", finish="stop")

    stand_in.on_request = answer
    headers = {"Idempotency-Key": key, "Authorization": "Bearer default", "Content-Type": "application/json"}
    async with httpx.AsyncClient(timeout=30) as http:
        said = await http.post(f"{client.base_url}completions", content=body, headers=headers)
    assert said.json()["choices"][0]["text"] == "yes", said.text
    assert (await stand_in.next()).request.id == repeated_id(claim_name(key), kept.endpoint, kept.digest)


async def test_several_prompts(client: openai.AsyncOpenAI, stand_in: StandIn, key: str) -> None:
    """Each prompt of a call has its one answer."""

    async def answer(asked: Asked) -> None:
        await asked.say(str(asked.request.prompt), finish="stop")

    stand_in.on_request = answer
    for _ in range(2):
        both = await client.completions.create(model="m", prompt=["a", "b"], extra_headers={"Idempotency-Key": key})
        assert [choice.text for choice in both.choices] == ["a", "b"]
    assert len(stand_in.asked) == 2


async def test_a_full_queue_is_no_answer(scene: Scene, client: openai.AsyncOpenAI, stand_in: StandIn, key: str) -> None:
    """C20: busy is said at once, with when to come again; the same call is served then, whatever its body."""
    publisher = Publisher(scene.connection)
    for _ in range(LIMITS.requests_per_subject):
        await publisher.publish("hr.request.default.full", b"x")
    for call in ALL:
        with pytest.raises(openai.RateLimitError) as raised:
            await call(client, f"{key} {call.__name__}", model="full")
        assert int(raised.value.response.headers["Retry-After"]) >= 1

    async def answer(asked: Asked) -> None:
        await asked.say("yes", finish="stop")

    stand_in.on_request = answer
    for call in ALL:
        assert await call(client, f"{key} {call.__name__}", "Other") == "yes"
