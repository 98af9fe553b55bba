"""What the live page is told, by an edge on a real broker."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.connection import BrokerOptions, Connection
from broker.server import EmbeddedServer
from broker.service import Service
from broker.topology import Topology, initialise
from schemas.backlog import Backlog
from schemas.codec import encode
from schemas.control import WorkerStatus
from schemas.grant import Credits
from stages.edge.access.keys import KeyEntry, add_key, digest_of
from stages.edge.live.watching import Seen, Watching
from tests.integration.conftest import SMALL
from tests.integration.edge.edges import PATIENCE_S, Edge, running
from tests.integration.edge.responses.stand_in import Asked, StandIn

ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
WORKER = WorkerStatus(worker="w1", model="m", state="ready", credits=Credits(3, 10), sent=1, max_slots=4, running=1)


async def state_of(http: httpx.AsyncClient, **headers: str) -> dict[str, Any]:
    answer = await http.get("/live/state", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def state_where(http: httpx.AsyncClient, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first that is so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            state = await state_of(http)
            if is_so(state):
                return state
            await asyncio.sleep(0.1)


async def beat(connection: Connection) -> None:
    """A worker and a scheduler, as one hears them."""
    while True:
        await connection.publish("hr.worker.m.w1", encode(WORKER))
        await connection.publish("hr.backlog.m", encode(Backlog(scheduler="s1", model="m")))
        await asyncio.sleep(0.3)


async def test_a_look_shows_the_pipeline(edge: Edge, behind: StandIn, connection: Connection) -> None:
    """Depths, workers and schedulers that speak, preprocess replicas that answer, partitions that nobody owns."""
    service = Service(connection, name="headrace-tokenizer", identity="pre-1", version="0.1.0", description="d")
    await service.start()
    beating = asyncio.create_task(beat(connection))
    async with edge.http() as http:
        asking = asyncio.create_task(http.post("/v1/chat/completions", json=ASKED))
        asked = await behind.next()
        state = await state_where(http, lambda state: bool(state["pipeline"]["workers"]))
        assert state["trouble"] == ""
        assert state["pipeline"]["queues"]["REQUESTS"]["messages"] == 1
        assert state["pipeline"]["queues"]["REQUESTS"]["waiting"] == 1
        assert [worker["name"] for worker in state["pipeline"]["workers"]] == ["w1"]
        assert state["pipeline"]["replicas"] == {"preprocess": 1, "schedule": 1, "inference": 1, "postprocess": 0}
        assert state["pipeline"]["unowned"] == [0, 1, 2]
        assert [slow["status"] for slow in state["edge"]["slowest"]] == [0]
        await asked.say("a", finish="stop")
        await asking
        state = await state_where(http, lambda state: state["edge"]["slowest"][0]["status"] == 200)
        assert (state["edge"]["in_hand"], state["edge"]["slowest"][0]["outcome"]) == (0, "stop")
    beating.cancel()
    await service.stop(0)


async def test_a_worker_that_is_silent_is_gone(edge: Edge, connection: Connection) -> None:
    """Two seconds after its last heartbeat."""
    beating = asyncio.create_task(beat(connection))
    async with edge.http() as http:
        await state_where(http, lambda state: state["pipeline"]["replicas"]["inference"] == 1)
        beating.cancel()
        await state_where(http, lambda state: state["pipeline"]["replicas"]["inference"] == 0)


async def test_one_state_is_sent_once(edge: Edge) -> None:
    """Who has it is told so; HEAD has no body; nobody between may keep it for others."""
    async with edge.http() as http:
        first = await http.get("/live/state")
        again = await http.get("/live/state", headers={"If-None-Match": first.headers["etag"]})
        head = await http.head("/live/state")
        assert (again.status_code, again.content, head.content) == (304, b"", b"")
        assert "private" in first.headers["cache-control"]
        assert first.headers["vary"] == "Authorization"
        await asyncio.sleep(1.3)
        later = await http.get("/live/state", headers={"If-None-Match": first.headers["etag"]})
        assert later.status_code == 200


async def test_nobody_watches_where_nobody_looks(connection: Connection, topology: Topology) -> None:
    """The watch begins with the first look, serves all who look, and ends by itself; a later look begins another."""
    watching = Watching(connection, idle_s=0.8)
    assert not watching.running
    many = await asyncio.gather(*(watching.look() for _ in range(20)))
    assert all(seen.snapshot is many[0].snapshot for seen in many)
    assert many[0].snapshot is not None
    await asyncio.sleep(2.5)
    assert not watching.running
    later = await watching.look()
    assert later.snapshot is not None
    assert later.number > many[0].number
    await watching.close()
    assert not watching.running


async def test_the_broker_goes_and_comes_back(edge: Edge, server: EmbeddedServer) -> None:
    """What was seen last is still there, marked as old; then all is seen again."""
    async with edge.http() as http:
        before = await state_where(http, lambda state: not state["trouble"])
        await server.kill()
        away = await state_where(http, lambda state: bool(state["trouble"]))
        assert away["trouble"] == "the broker is away"
        assert away["pipeline"]["at"] >= before["pipeline"]["at"]
        await server.restart()
        back = await state_where(http, lambda state: not state["trouble"])
        assert back["pipeline"]["at"] > away["pipeline"]["at"]


async def test_a_first_look_without_a_broker(edge: Edge, server: EmbeddedServer) -> None:
    """Says so, soon."""
    await server.kill()
    began = time.monotonic()
    async with edge.http() as http:
        state = await state_of(http)
    assert time.monotonic() - began < 4
    assert (state["pipeline"], state["trouble"] != "") == (None, True)
    await server.restart()


async def test_who_may_look(behind: StandIn, broker_url: str, topology: Topology, tmp_path: Path) -> None:
    """With keys the page is public, its numbers need a key, and nobody sees requests of another tenant."""
    keys = tmp_path / "keys.toml"
    for tenant in ("team-a", "team-b"):
        add_key(keys, KeyEntry(name=tenant, sha256=digest_of(f"hr-{tenant}"), tenant=tenant))
    one, other = ({"Authorization": f"Bearer hr-{tenant}"} for tenant in ("team-a", "team-b"))

    async def answer(asked: Asked) -> None:
        await asked.say("secret words", finish="stop")

    behind.on_request = answer
    async with running(broker_url, topology, keys_file=str(keys)) as edge, edge.http() as http:
        assert (await http.get("/")).status_code == 200
        for path in ("/live/state", "/live/requests/x"):
            for headers in ({}, {"Authorization": "Bearer hr-nobody"}):
                assert (await http.get(path, headers=headers)).status_code == 401
        named = {**one, "X-Request-Id": "mine"}
        assert (await http.post("/v1/chat/completions", json=ASKED, headers=named)).status_code == 200
        (slow,) = (await state_of(http, **one))["edge"]["slowest"]
        assert slow["id"].startswith("mine-")
        assert (await state_of(http, **other))["edge"]["slowest"] == []
        mine, theirs = [(await http.get(f"/live/requests/{slow['id']}", headers=who)).json() for who in (one, other)]
        assert (mine["stage"], theirs["stage"]) == ("ended", "unknown")
        assert "secret" not in str(mine)


async def test_where_a_request_is(edge: Edge, behind: StandIn, connection: Connection) -> None:
    """In REQUESTS it is at preprocess, gone from there at the scheduler, with a result at a worker, then ended."""
    async with edge.http() as http:

        async def stage() -> str:
            return (await http.get("/live/requests/live-1")).json()["stage"]

        assert await stage() == "unknown"
        headers = {"X-Request-Id": "live-1"}
        asking = asyncio.create_task(http.post("/v1/chat/completions", json=ASKED, headers=headers))
        asked = await behind.next()
        assert await stage() == "preprocess"
        await connection.jetstream.purge_stream("REQUESTS")
        assert await stage() == "schedule"
        await asked.say("a")
        assert await stage() == "inference"
        await asked.say("b", finish="stop")
        await asking
        assert await stage() == "unknown"  # by that name alone it is known while it runs
        whole = (await http.get(f"/live/requests/{asked.request.id}")).json()
        assert (whole["stage"], whole["choices"][0]["outcome"]) == ("ended", "stop")
        wrong = await http.get("/live/requests/no.id")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_request")


async def test_those_who_look_hold_up_no_stop(edge: Edge) -> None:
    """Pages that ask again and again, over connections that stay open."""
    async with edge.http() as http:

        async def look() -> None:
            while True:
                await http.get("/live/state")

        looking = [asyncio.create_task(look()) for _ in range(5)]
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await edge.stop()
        assert time.monotonic() - began < 3
        ended = await asyncio.gather(*looking, return_exceptions=True)
        assert all(isinstance(each, httpx.TransportError) for each in ended)


@pytest.fixture
async def narrow() -> Any:
    """A broker whose user `edge` may not see all of a pipeline."""
    allowed = ["$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.>", "$JS.API.CONSUMER.INFO.>", "_INBOX.>"]
    users = [
        {"user": "all", "password": "a"},
        {
            "user": "edge",
            "password": "e",
            "permissions": {"publish": allowed, "subscribe": ["_INBOX.>", "hr.backlog.*"]},
        },
    ]
    server = await EmbeddedServer.start(authorization={"users": users})
    yield server
    await server.stop()


async def test_what_may_not_be_seen_is_named(narrow: EmbeddedServer) -> None:
    """The rest is there, and at once; the reason names the subject that is to be permitted."""
    everybody = await Connection.open(BrokerOptions(url=narrow.url, user="all", password="a"), patience_s=10)
    await initialise(everybody, SMALL)
    connection = await Connection.open(BrokerOptions(url=narrow.url, user="edge", password="e"), patience_s=10)
    watching = Watching(connection)
    began = time.monotonic()
    seen: Seen = await watching.look()
    took = time.monotonic() - began
    assert seen.snapshot is not None
    assert took < 2.5
    assert {part: why.rpartition(" ")[2] for part, why in seen.snapshot.unseen.items()} == {
        "consumers": "$JS.API.CONSUMER.LIST.",
        "leases": "$JS.API.DIRECT.GET.KV_hr_partitions",
        "workers": "hr.worker.*.*",
        "preprocess": "$SRV.PING.headrace-tokenizer",
    }
    assert seen.snapshot.depths.streams["REQUESTS"].messages == 0
    for opened in (connection, everybody):
        if opened is connection:
            await watching.close()
        await opened.close()
