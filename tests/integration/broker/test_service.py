"""A micro service beyond what its users see: errors, what no message holds, and a broker that comes back."""

import asyncio
import json
from typing import Any

import pytest_asyncio

from broker.client import Headrace
from broker.connection import BrokerOptions, Connection, Inbound, NoResponders
from broker.server import EmbeddedServer
from broker.service import ERROR_CODE_HEADER, ERROR_HEADER, Reply, Service
from schemas.codec import encode
from schemas.tokenization import TokenizeAnswer
from tests.integration.broker.test_client_permissions import TENANT, acme, secured, stages

__all__ = ["secured", "stages"]


async def echo(asked: Inbound) -> Reply:
    if asked.data == b"break":
        raise RuntimeError("secret words of a user")
    if asked.data == b"refuse":
        return Reply(b"why", {}, 400, "invalid_request", "prompt:\r\nžluť " + "x" * 5000)
    if asked.data == b"large":
        return Reply(b"x" * 9_000_000)
    return Reply(asked.data, {"Content-Type": "text/plain"})


@pytest_asyncio.fixture
async def service(connection: Connection) -> Service:
    """`echo` on the subject `s.echo`."""
    made = Service(connection, name="echoes", identity="one", version="1.2.3", description="what was said")
    await made.start()
    await made.serve("echo", "s.echo", echo, {"k": "v"})
    return made


async def stats(asking: Connection) -> dict[str, Any]:
    (endpoint,) = json.loads((await asking.request("$SRV.STATS.echoes.one", b"", 5)).data)["endpoints"]
    return endpoint


async def test_errors_are_told_and_counted(service: Service, other: Connection) -> None:
    """By the convention's headers, in plain ASCII of bounded length; the statistics hold nothing that a user wrote."""
    refused = await other.request("s.echo", b"refuse", 5)
    assert refused.data == b"why"
    assert refused.headers[ERROR_CODE_HEADER] == "400"
    assert refused.headers[ERROR_HEADER].startswith("invalid_request: prompt:")
    assert refused.headers[ERROR_HEADER].isprintable()
    assert len(refused.headers[ERROR_HEADER]) <= 256
    broken = await other.request("s.echo", b"break", 5)
    assert (broken.headers[ERROR_CODE_HEADER], broken.headers[ERROR_HEADER]) == ("500", "internal")
    large = await other.request("s.echo", b"large", 5)
    assert large.headers[ERROR_CODE_HEADER] == "413"
    assert (await other.request("s.echo", b"fine", 5)).headers == {"Content-Type": "text/plain"}
    found = await stats(other)
    assert (found["num_requests"], found["num_errors"], found["last_error"]) == (4, 3, "413:too_large")
    await service.stop(5)


async def test_a_question_without_a_way_back_does_no_harm(service: Service, other: Connection) -> None:
    """It is counted; nobody can be told."""
    await other.publish("s.echo", b"refuse")
    await other.publish("$SRV.PING", b"")
    assert (await other.request("s.echo", b"fine", 5)).data == b"fine"
    assert (await stats(other))["num_requests"] == 2
    await service.stop(5)


async def test_it_is_not_found_any_more_once_it_stopped(service: Service, other: Connection) -> None:
    """No endpoint and no ping; what was in hand is answered first."""
    last = asyncio.create_task(other.request("s.echo", b"last", 5))
    while (await stats(other))["num_requests"] < 1:  # noqa: ASYNC110 - it is asked of the broker
        await asyncio.sleep(0)
    await service.stop(5)
    assert (await last).data == b"last"
    for subject in ("s.echo", "$SRV.PING", "$SRV.INFO.echoes", "$SRV.STATS.echoes.one"):
        try:
            await other.request(subject, b"", 5)
        except NoResponders:
            continue
        raise AssertionError(subject)


async def test_what_it_has_no_time_for_is_told_so(connection: Connection, other: Connection) -> None:
    """Who asked does not wait for an answer that will not come."""
    never = asyncio.Event()

    async def hang(_: Inbound) -> Reply:
        never.set()
        await asyncio.Event().wait()
        return Reply(b"")

    made = Service(connection, name="hangs", identity="one", version="1.2.3", description="")
    await made.serve("hang", "s.hang", hang, {})
    waiting = asyncio.create_task(other.request("s.hang", b"", 30))
    await never.wait()
    await made.stop(0.01)
    assert (await waiting).headers[ERROR_CODE_HEADER] == "503"


async def test_it_comes_back_with_the_broker(server: EmbeddedServer, service: Service) -> None:
    """A broker that was killed: endpoints and pings are there again, the count goes on."""
    asking = await Connection.open(BrokerOptions(server.url, "asking"), patience_s=10)
    await asking.request("s.echo", b"1", 5)
    await server.kill()
    await server.restart()
    async with asyncio.timeout(30):
        while True:
            await asking.wait_connected()
            try:
                assert (await asking.request("s.echo", b"2", 5)).data == b"2"
                break
            except NoResponders:
                await asyncio.sleep(0.05)
    assert (await stats(asking))["num_requests"] == 2
    await asking.close()
    await service.stop(5)


async def test_what_a_client_may_ask(secured: EmbeddedServer, stages: Connection) -> None:
    """A tenant that may publish to `hr.tokenize.*` needs no more to be answered."""
    answer = TokenizeAnswer(count=1, max_model_len=64, tokens=[3])

    async def answering(_: Inbound) -> Reply:
        return Reply(encode(answer))

    made = Service(stages, name="t", identity="one", version="1.2.3", description="")
    await made.serve("tokenize-m", "hr.tokenize.m", answering, {})
    assert "hr.tokenize.*" in TENANT["publish"]
    async with Headrace(options=acme(secured), tenant="acme") as client:
        assert await client.tokenize(prompt="a") == answer
    await made.stop(5)
