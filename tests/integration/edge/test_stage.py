"""The edge over real sockets and a real broker: who leaves, who waits, who stops."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker import subjects
from broker.connection import Connection, Inbound
from broker.depths import waiting
from broker.free_ports import free_port
from broker.jetstream_api import call
from broker.server import EmbeddedServer
from broker.topology import Topology
from schemas.faults import Fault
from stages.edge.access.keys import KeyEntry, add_key, digest_of
from stages.edge.http.listening import listen
from stages.edge.settings import EdgeSettings
from stages.settings import SettingsError
from tests.integration.conftest import SMALL
from tests.integration.edge.edges import PATIENCE_S, CancelCount, Edge, running
from tests.integration.edge.responses.stand_in import Asked, StandIn

CHAT = "/v1/chat/completions"


def asking(**options: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **options}


async def answer_at_once(asked: Asked) -> None:
    await asked.say("a")
    await asked.say("b", finish="stop")


async def begin(edge: Edge, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Sends a request over a socket of its own, as a client does that can leave at any time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", edge.settings.port)
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    return reader, writer


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("chunks", [0, 2])
async def test_a_client_that_leaves_cancels_its_request_once(
    edge: Edge, behind: StandIn, cancels: CancelCount, *, stream: bool, chunks: int
) -> None:
    """C8: streamed or whole, before the first token or behind the second, by closing the socket."""
    reader, writer = await begin(edge, asking(stream=stream))
    asked = await behind.next()
    for _ in range(chunks):
        await asked.say("word ")
    if stream and chunks:
        async with asyncio.timeout(PATIENCE_S):
            while b"word" not in await reader.readline():
                pass
    writer.close()
    async with asyncio.timeout(PATIENCE_S):
        await asked.cancelled.wait()
    async with edge.http() as client:  # a round trip, in which a second cancel could come
        behind.on_request = answer_at_once
        assert (await client.post(CHAT, json=asking())).status_code == 200
    assert cancels.keys == [f"default.{asked.request.id}"]


async def test_normal_ends_cancel_nothing(edge: Edge, behind: StandIn, cancels: CancelCount) -> None:
    """C9: a hundred streams that end by themselves, no cancel."""
    behind.on_request = answer_at_once
    gate = asyncio.Semaphore(8)  # the queue of the test holds 16

    async def ask(client: httpx.AsyncClient) -> str:
        async with gate:
            answer = await client.post(CHAT, json=asking(stream=True))
            await _take_out(edge)
        return answer.text

    async with edge.http() as client:
        answers = await asyncio.gather(*(ask(client) for _ in range(100)))
    assert all(answer.endswith("data: [DONE]\n\n") for answer in answers)
    assert not cancels.keys


async def _take_out(edge: Edge) -> None:
    """Nobody takes requests out of the queue here."""
    await call(edge.context.connection, "STREAM.PURGE.REQUESTS", {"keep": 8})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses"])
async def test_a_refusal_says_when_to_come_again(edge: Edge, behind: StandIn, path: str, stream: bool) -> None:
    """Where more work waits than fits into the deadline: the header is the fault's own figure, streamed or whole."""
    asked = {CHAT: asking(), "/v1/completions": {"model": "m", "prompt": "hi"}}.get(path, {"model": "m", "input": "hi"})
    async with edge.http() as client:
        ask = asyncio.create_task(client.post(path, json={**asked, "stream": stream}))
        await (await behind.next()).fail(Fault("busy", "about 40 s of work wait", retry_after=12.5))
        answer = await ask
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "13")


async def test_surplus_is_refused_at_once(edge: Edge, behind: StandIn, connection: Connection) -> None:
    """C20: 50 at once into a queue of 16: the others get 429 with Retry-After; the depth is the broker's."""
    capacity = SMALL.requests_per_subject
    async with edge.http(limits=httpx.Limits(max_connections=60)) as client:
        asks = [asyncio.create_task(client.post(CHAT, json=asking())) for _ in range(50)]
        refused: list[httpx.Response] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(refused) < 50 - capacity:
                refused = [ask.result() for ask in (await asyncio.wait(asks, timeout=0.1))[0]]
        assert {answer.status_code for answer in refused} == {429}
        assert {answer.json()["error"]["code"] for answer in refused} == {"busy"}
        assert all(1 <= int(answer.headers["retry-after"]) <= 60 for answer in refused)
        queue = await waiting(connection, subjects.REQUESTS, subjects.request("default", "m"))
        assert queue.depth == capacity
        assert 0 < queue.oldest_s < PATIENCE_S
        for number in range(capacity):
            await answer_at_once(await behind.next(number))
        done = await asyncio.gather(*asks)
    assert [answer.status_code for answer in done].count(200) == capacity


async def test_a_soft_stop_lets_answers_end(edge: Edge, behind: StandIn, cancels: CancelCount) -> None:
    """It is not ready any more and takes no new connection; what runs is finished; nothing is cancelled."""
    async with edge.http() as client:
        running_one = asyncio.create_task(client.post(CHAT, json=asking(stream=True)))
        asked = await behind.next()
        await asked.say("a")
        stopping = asyncio.create_task(edge.stop())
        async with asyncio.timeout(PATIENCE_S):
            await edge.unready.wait()
            while not await _refuses(edge):  # noqa: ASYNC110 — it is asked over the network
                await asyncio.sleep(0.05)
        await asked.say("b", finish="stop")
        answer = await running_one
        assert answer.text.endswith("data: [DONE]\n\n")
        await stopping
    assert not cancels.keys


async def _refuses(edge: Edge) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", edge.settings.port)
    except OSError:
        return True
    writer.close()
    return False


async def test_what_outlasts_the_grace_time_is_told_and_goes_on(
    behind: StandIn, cancels: CancelCount, broker_url: str, topology: Topology
) -> None:
    """A stream gets an error event, a whole request 503 with Retry-After; neither is cancelled: both can be read on."""
    async with running(broker_url, topology, grace_s=1.2) as edge, edge.http() as client:
        streamed = asyncio.create_task(client.post(CHAT, json=asking(stream=True)))
        await (await behind.next()).say("a")
        whole = asyncio.create_task(client.post(CHAT, json=asking()))
        await behind.next(1)
        await edge.stop()
        assert '"code":"unavailable"' in (await streamed).text
        refused = await whole
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
    assert refused.headers["retry-after"]
    assert not cancels.keys


async def test_replicas_share_a_port(behind: StandIn, broker_url: str, topology: Topology) -> None:
    """Both answer there; when one stops the other goes on, and a port of somebody else is a wrong setting."""
    behind.on_request = answer_at_once
    port = free_port()
    async with running(broker_url, topology, port=port) as one, running(broker_url, topology, port=port) as two:
        for edge in (one, two):
            async with edge.http() as client:
                assert (await client.post(CHAT, json=asking())).status_code == 200
            if edge is one:
                await one.stop()
    with socket.create_server(("127.0.0.1", 0)) as alone, pytest.raises(SettingsError, match="HEADRACE_EDGE_PORT"):
        await Edge.start(broker_url, topology, port=alone.getsockname()[1])


async def test_without_the_broker_it_is_not_ready_and_comes_back(
    edge: Edge, behind: StandIn, server: EmbeddedServer
) -> None:
    """`/ready` says 503 in the envelope, `/live` goes on; a request that comes meanwhile is answered afterwards."""
    async with edge.http() as client:
        assert (await client.get("/ready")).status_code == 200
        assert (await client.get("/health")).status_code == 200
        await server.kill()
        async with asyncio.timeout(PATIENCE_S):
            await edge.unready.wait()
        answer = await client.get("/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"]
        assert (await client.get("/live")).status_code == 200
        assert "m" in [model["id"] for model in (await client.get("/v1/models")).json()["data"]]
        behind.on_request = answer_at_once
        meanwhile = asyncio.create_task(client.post(CHAT, json=asking()))
        await server.restart()
        assert (await meanwhile).status_code == 200
        assert (await client.get("/ready")).status_code == 200


async def test_a_key_gives_tenant_and_models(
    tmp_path: Path, behind: StandIn, broker_url: str, topology: Topology
) -> None:
    """The request goes into the queue of its key's tenant; a model that is not the key's does not exist for it."""
    keys = tmp_path / "keys.toml"
    add_key(keys, KeyEntry(name="alice", sha256=digest_of("k1"), tenant="team-a"))
    add_key(keys, KeyEntry(name="bob", sha256=digest_of("k2"), tenant="team-b", models=["other"], concurrent=1))
    behind.on_request = answer_at_once
    async with running(broker_url, topology, keys_file=str(keys)) as edge, edge.http() as client:
        alice, bob = ({"Authorization": f"Bearer {key}"} for key in ("k1", "k2"))
        assert (await client.post(CHAT, json=asking())).status_code == 401
        assert (await client.post(CHAT, json=asking(), headers=alice)).status_code == 200
        assert (await behind.next()).tenant == "team-a"
        refused = await client.post(CHAT, json=asking(), headers=bob)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        assert (await client.get("/v1/models", headers=bob)).json()["data"] == []
        assert (await client.get("/v1/models/m", headers=bob)).status_code == 404
        assert (await client.get("/v1/models/m", headers=alice)).json()["max_model_len"] == 64


async def test_the_trace_goes_on(edge: Edge, behind: StandIn, connection: Connection) -> None:
    """`traceparent` of HTTP is that of the request; what is none is left out, and costs nothing."""
    heard: list[str] = []

    async def on_request(message: Inbound) -> None:
        heard.append(message.headers.get("traceparent", ""))

    await connection.subscribe("hr.request.>", on_request)
    await connection.prove_subscriptions()
    behind.on_request = answer_at_once
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with edge.http() as client:
        for text in (trace, "00-bad", ""):
            answer = await client.post(CHAT, json=asking(), headers={"traceparent": text, "X-Request-Id": "my.id"})
            assert answer.status_code == 200
            assert answer.headers["x-request-id"] == "my.id"
    assert heard == [trace, "", ""]
    assert (await behind.next()).request.id.startswith("my-id-")


async def test_an_unknown_model_is_a_404(edge: Edge, behind: StandIn) -> None:
    """C6: at once, streamed or not; nothing is queued."""
    async with edge.http() as client:
        for stream in (False, True):
            answer = await client.post(CHAT, json={**asking(stream=stream), "model": "nope"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
            assert answer.json()["error"]["param"] == "model"
    assert not behind.asked


def test_an_address_that_cannot_be_had_is_a_wrong_setting() -> None:
    """Starting again would not help."""
    with pytest.raises(SettingsError, match="HEADRACE_EDGE_PORT"):
        listen(EdgeSettings(host="203.0.113.1", port=free_port()))
