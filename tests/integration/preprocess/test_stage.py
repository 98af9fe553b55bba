"""The preprocess stage on a real broker: each request ends as tickets, an end or a dead letter, and leaves REQUESTS."""

import asyncio
import base64
import json
import time
from typing import Any

import pytest

from broker import subjects
from broker.cancels import put_cancel
from broker.connection import Connection
from broker.jetstream_api import call
from broker.registry import Registry
from broker.server import EmbeddedServer
from broker.topology import Topology
from schemas.codec import decode, unpack_ids
from schemas.control import Cancel, DeadLetter
from schemas.request import Request, Sampling
from stages.preprocess import stage as stage_module
from stages.preprocess.preparation import Preparation
from stages.preprocess.stage import StuckError
from tests.integration.preprocess.replicas import Start, ends, request, settled, stored, submit, tickets, until
from tests.unit.preprocess.vocabularies import card, files, t256


async def test_requests_become_tickets(connection: Connection, start: Start) -> None:
    """msgpack and JSON, chat and prompt, several choices: each choice one ticket, each request acknowledged."""
    await start()
    await submit(connection, request("a", n=2, sampling=Sampling(seed=1)))
    by_hand = {"id": "b", "session": "s", "prompt": "Hi", "sampling": {"max_tokens": 5}, "stop": "\n"}
    await submit(connection, json.dumps(by_hand).encode(), json_=True)
    await submit(connection, Request(id="c", session="s", prompt=[5, 6]), tenant="other")
    await settled(connection)
    found = {(ticket.key, ticket.choice): ticket for ticket in await tickets(connection, 4)}
    assert sorted(found) == [("other.c", 0), ("t.a", 0), ("t.a", 1), ("t.b", 0)]
    assert found["t.a", 1].sampling.seed == 2
    typed = found["t.b", 0]
    assert bytes(unpack_ids(typed.prompt)) == b"Hi"
    assert (typed.answer.encoding, typed.answer.stop, typed.sampling.max_tokens) == ("json", ["\n"], 5)


async def test_refusals_are_told_through_the_journal(connection: Connection, topology: Topology, start: Start) -> None:
    """Good neighbours are not touched; nothing stays in REQUESTS."""
    await start()
    await submit(connection, request("temperature", sampling=Sampling(temperature=9.0)))
    await submit(connection, request("long", "x" * 5000))
    await submit(connection, b'{"id": "types", "session": "s", "messages": [{"role": 3}]}', json_=True)
    await submit(connection, request("model"), model="nope")
    await submit(connection, b'{"id": "surrogate", "session": "s", "prompt": "\\ud83d"}', json_=True)
    await submit(connection, request("good"))
    await settled(connection)
    found = {end.key: end for end in await ends(connection, topology, 5)}
    assert {key: (end.fault.code, end.fault.param) for key, end in found.items()} == {
        "t.temperature": ("invalid_request", "sampling.temperature"),
        "t.long": ("context_length_exceeded", "messages"),
        "t.types": ("invalid_request", "messages[0].role"),
        "t.model": ("model_not_found", "model"),
        "t.surrogate": ("invalid_request", "prompt"),
    }
    assert found["t.types"].encoding == "json"
    assert [ticket.request for ticket in await tickets(connection, 1)] == ["good"]


async def test_what_nobody_can_answer_lies_in_dead(connection: Connection, start: Start) -> None:
    """With the message as it came."""
    await start()
    await submit(connection, b"\xff\xff")
    await settled(connection)
    info = await call(connection, f"STREAM.MSG.GET.{subjects.DEAD}", {"last_by_subj": "hr.dead.tiny"})
    letter = decode(DeadLetter, base64.b64decode(info["message"]["data"]))
    assert (letter.subject, letter.payload) == ("hr.request.t.tiny", b"\xff\xff")


async def test_a_cancelled_request_is_told_so(connection: Connection, topology: Topology, start: Start) -> None:
    """E9: cancelled before preprocess saw it."""
    await put_cancel(connection, "t.a", Cancel("s"))
    await start()
    await submit(connection, request("a", n=2))
    await settled(connection)
    assert [(end.key, end.fault.code) for end in await ends(connection, topology, 2)] == [("t.a", "cancelled")] * 2


@pytest.mark.parametrize("settings", [{"parked_requests": 3}, {"slots": 4}], ids=["a full line", "few slots"])
async def test_a_full_queue_holds_up_one_tenant_alone(
    connection: Connection, topology: Topology, start: Start, settings: dict[str, int]
) -> None:
    """Its requests are parked, kept alive beyond the ack wait, and go on when there is room: none lost, none twice.

    Also where they are more than a replica has slots.
    """
    await start(**settings)
    limit = topology.tickets_per_subject
    for number in range(limit + 6):
        await submit(connection, request(f"r{number}"))

    async def jammed() -> bool:
        return await stored(connection, subjects.REQUESTS) == 6

    await until(jammed)
    await submit(connection, request("free"), tenant="other")

    async def passed() -> bool:
        return await stored(connection, subjects.TICKETS) == limit + 1

    await until(passed)
    await asyncio.sleep(topology.request_ack_wait_s * 1.5)
    assert await stored(connection, subjects.REQUESTS) == 6
    found = await tickets(connection, limit + 7)
    assert sorted(ticket.key for ticket in found) == sorted([f"t.r{n}" for n in range(limit + 6)] + ["other.free"])
    await settled(connection)


async def test_replicas_share_the_work(connection: Connection, start: Start) -> None:
    """Two of them, one stopped and one killed in a burst, a third comes: every request becomes one ticket."""
    first, second = await start("preprocess-1"), await start("preprocess-2", batch_requests=1)
    asked = [request(f"r{number}", "x" * 1500) for number in range(60)]
    burst = asyncio.gather(*(submit(connection, each, tenant=f"t{n % 6}") for n, each in enumerate(asked)))
    await asyncio.sleep(0.01)
    await second.kill()
    await asyncio.gather(burst, first.stop(), start("preprocess-3"))
    await settled(connection)
    found = await tickets(connection, 60)
    assert len({ticket.key for ticket in found}) == len(found) == 60


async def test_a_broker_that_restarts(server: EmbeddedServer, connection: Connection, start: Start) -> None:
    """Killed and started again on the same store: the stage goes on by itself."""
    replica = await start()
    await submit(connection, request("before"))
    await settled(connection)
    await server.kill()
    await server.restart()
    async with asyncio.timeout(10):
        await connection.wait_connected()
        await replica.ready.wait()
    await submit(connection, request("after"))
    await settled(connection)
    assert sorted(ticket.request for ticket in await tickets(connection, 2)) == ["after", "before"]


async def test_a_broker_killed_right_after_a_fetch(
    server: EmbeddedServer, connection: Connection, start: Start
) -> None:
    """It forgets what it handed out, and hands it to somebody else as if for the first time: still one ticket each."""
    await start("preprocess-1")
    await start("preprocess-2")
    names = [f"r{number}" for number in range(30)]
    for number, name in enumerate(names):
        await submit(connection, request(name), tenant=f"t{number % 3}")
        if number % 10 == 9:
            await server.kill()
            await server.restart()
            await connection.wait_connected()
    await settled(connection)
    assert sorted(ticket.request for ticket in await tickets(connection, len(names))) == sorted(names)


async def test_a_stuck_thread_ends_the_process(
    connection: Connection, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds is let go after a bounded time, and another replica answers it."""

    def sleep(*_: Any) -> None:
        time.sleep(10)

    monkeypatch.setattr(Preparation, "prepare", sleep)
    monkeypatch.setattr(stage_module, "STUCK_S", 0.3)
    stuck = await start()
    await submit(connection, request("a"))
    with pytest.raises(StuckError):
        await asyncio.wait_for(stuck.task, 8)
    await stuck.close()
    monkeypatch.undo()
    await start("preprocess-2")
    assert [ticket.request for ticket in await tickets(connection, 1)] == ["a"]


async def test_a_model_that_comes_later(connection: Connection, topology: Topology, start: Start) -> None:
    """A worker that starts while preprocess runs: its model is served from its card on."""
    await start()
    await submit(connection, request("early"), model="late")
    assert (await ends(connection, topology, 1))[0].fault.code == "model_not_found"
    await Registry(connection).publish_model(card("late", name="late"), files(t256()))
    await asyncio.sleep(0.3)
    await submit(connection, request("now"), model="late")
    assert [ticket.request for ticket in await tickets(connection, 1, "late")] == ["now"]


async def test_stop_gives_parked_requests_back_at_once(
    connection: Connection, topology: Topology, start: Start
) -> None:
    """A soft stop waits for no room: another replica takes them over."""
    replica = await start()
    for number in range(topology.tickets_per_subject + 2):
        await submit(connection, request(f"r{number}"))

    async def jammed() -> bool:
        return await stored(connection, subjects.REQUESTS) == 2

    await until(jammed)
    async with asyncio.timeout(4):
        await replica.stop()
    assert await stored(connection, subjects.REQUESTS) == 2
    await start("preprocess-2")
    assert len(await tickets(connection, topology.tickets_per_subject + 2)) == topology.tickets_per_subject + 2
    await settled(connection)
