"""The postprocess stage on a real broker: one replica, several, and what dies under it."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker import subjects
from broker.cancels import put_cancel
from broker.connection import Inbound
from broker.journal import JournalRecord
from broker.leases import owners
from broker.server import EmbeddedServer
from schemas.codec import decode, unpack_ids
from schemas.control import Cancel
from schemas.faults import Fault, RequestFault
from schemas.journal import End
from schemas.result import Result
from schemas.ticket import AnswerSpec
from stages.postprocess.effects import Effects
from stages.postprocess.lookups import Found
from stages.postprocess.owner import Owner
from tests.integration.postprocess.conftest import SESSION, TENANT, Request, World
from tests.integration.postprocess.waiting import until, until_async

ROOT = Path(__file__).parents[3]


async def settled(world: World) -> bool:
    """No ticket is left, and no journal entry."""
    return await world.tickets_left() == 0 and await world.lags() == 0


async def test_an_answer_settles_everything(world: World) -> None:
    """Text at the client, the ticket acknowledged, the journal purged."""
    await world.replica()
    request = await world.submit("r1")
    attempt, _ = await world.open(request)
    await world.write(request, attempt, 0, "Grüße ")
    await world.write(request, attempt, 8, "aus 😀", finish="length")
    assert await world.ended(request) == "Grüße aus 😀"
    assert await until_async(lambda: settled(world))


async def test_results_in_json_carry_their_content_type(world: World) -> None:
    """A person with any NATS tool can read them; those in msgpack need no header."""
    received: list[Inbound] = []

    async def on_result(message: Inbound) -> None:
        received.append(message)

    await world.connection.subscribe(subjects.result("*", TENANT, SESSION, "*"), on_result)
    await world.connection.prove_subscriptions()
    await world.replica()
    request = await world.submit("r1", answer=AnswerSpec(encoding="json"))
    attempt, _ = await world.open(request)
    await world.write(request, attempt, 0, "hi", finish="length")
    await world.ended(request)
    await until(lambda: received and decode(Result, received[-1].data, "json").terminal)
    assert {message.headers["Content-Type"] for message in received} == {"application/json"}


async def test_a_ticket_that_comes_again_is_answered_from_the_results(world: World) -> None:
    """The worker hands back: the ticket comes again at once, the reply has the ids, the answer goes on behind them."""
    await world.replica()
    request = await world.submit("r1")
    first, _ = await world.open(request)
    await world.write(request, first, 0, "abc")
    await world.hand_back(request, first)
    request = await world.redelivered(request, within_s=1.0)
    second, reply = await world.open(request, fresh=False)
    answer = await asyncio.wait_for(reply, 2)
    assert (answer.attempt, unpack_ids(answer.ids)) == (second, list(b"abc"))
    await world.write(request, first, 3, "ZZZ")
    await world.write(request, second, 3, "def", finish="length")
    assert await world.ended(request) == "abcdef"
    assert world.drops
    late, reply = await world.open(request, fresh=False)
    assert (await asyncio.wait_for(reply, 10)).ended
    assert late > second


async def test_a_cancel_ends_what_is_open_and_what_is_unknown(world: World) -> None:
    """C8: terminal `cancelled`, the ticket acknowledged, the worker dropped; a request that nobody has seen too."""
    await world.replica()
    request = await world.submit("r1")
    attempt, _ = await world.open(request)
    await world.write(request, attempt, 0, "abc")
    await until_async(lambda: world.stored(request))
    await put_cancel(world.connection, request.key, Cancel(SESSION))
    with pytest.raises(RequestFault, match="cancelled"):
        await world.ended(request)
    assert await until_async(lambda: settled(world))
    assert [item.attempt for drop in world.drops for item in drop.items] == [attempt]

    unknown = await world.submit("r2")
    await put_cancel(world.connection, unknown.key, Cancel(SESSION))
    with pytest.raises(RequestFault, match="cancelled"):
        await world.ended(unknown)


async def test_a_cancel_without_an_owner_waits_for_one(world: World) -> None:
    """Whoever owns the partition next reads the bucket."""
    request = await world.submit("r1")
    await put_cancel(world.connection, request.key, Cancel(SESSION))
    await world.replica()
    with pytest.raises(RequestFault, match="cancelled"):
        await world.ended(request)


async def test_a_refused_request_is_answered(world: World) -> None:
    """An `end` of preprocess, of a request that has no ticket."""
    await world.replica()
    request = await world.submit("r1")
    fault = Fault("invalid_request", "must be text", "messages[0].content")
    await world.fail(request, End(key=request.key, choice=0, session=SESSION, fault=fault))
    with pytest.raises(RequestFault, match=r"messages\[0\].content"):
        await world.ended(request)


async def test_nothing_is_lost_when_replicas_come_and_go(world: World) -> None:
    """One more and one less in mid-stream: partitions move, every answer stays whole and in order."""
    first = await world.replica()
    requests = [await world.submit(f"r{number}") for number in range(6)]
    attempts = [(await world.open(request))[0] for request in requests]
    text = "".join(f"{number:03d} " for number in range(100))

    async def speak() -> None:
        for position in range(0, len(text), 4):
            for request, attempt in zip(requests, attempts, strict=True):
                last = position + 4 == len(text)
                piece = text[position : position + 4]
                await world.write(request, attempt, position, piece, finish="length" if last else "")
            await asyncio.sleep(0.02)

    speaking = asyncio.create_task(speak())
    await asyncio.sleep(0.3)
    second = await world.replica()
    await until_async(lambda: _owner_is(world, second.context.instance))
    await first.stop()
    assert not speaking.done()
    await speaking
    assert {await world.ended(request) for request in requests} == {text}
    assert await until_async(lambda: settled(world))
    assert set((await owners(world.connection)).values()) == {second.context.instance}


async def test_nothing_is_lost_when_a_replica_dies(world: World) -> None:
    """As by SIGKILL in mid-stream: another takes over once the leases expire, and goes on with the next character."""
    first = await world.replica()
    requests = [await world.submit(f"r{number}") for number in range(4)]
    attempts = [(await world.open(request))[0] for request in requests]
    for request, attempt in zip(requests, attempts, strict=True):
        await world.write(request, attempt, 0, "first half, ")
    await until_async(lambda: _all_begun(world, requests))
    await first.die()
    for request, attempt in zip(requests, attempts, strict=True):
        await world.write(request, attempt, 12, "second half", finish="length")
    await world.replica()
    for request in requests:
        assert await world.ended(request) == "first half, second half"
    assert await until_async(lambda: settled(world))


async def test_a_bug_costs_a_second_and_no_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no entry may do, end the reading of its partition: it starts over from what is stored."""
    await world.replica()
    request = await world.submit("r1")
    attempt, _ = await world.open(request)
    await world.write(request, attempt, 0, "before, ")
    await until_async(lambda: world.text_so_far(request))
    apply, calls = Owner.apply, iter([True])

    def fails_once(owner: Owner, records: Sequence[JournalRecord], found: Found) -> Effects:
        if next(calls, False):
            raise RuntimeError("a bug")
        return apply(owner, records, found)

    monkeypatch.setattr(Owner, "apply", fails_once)
    await world.write(request, attempt, 8, "behind", finish="length")
    assert await world.ended(request) == "before, behind"
    assert await until_async(lambda: settled(world))


async def test_nothing_is_lost_when_the_broker_dies(world: World, server: EmbeddedServer) -> None:
    """SIGKILL on the broker in mid-stream, three times: everything is there once it is back."""
    await world.replica()
    request = await world.submit("r1")
    attempt, _ = await world.open(request)
    text = "".join(f"{number:03d} " for number in range(60))

    async def speak() -> None:
        for position in range(0, len(text), 4):
            last = position + 4 == len(text)
            await world.write(
                request, attempt, position, text[position : position + 4], finish="length" if last else ""
            )
            await asyncio.sleep(0.02)

    speaking = asyncio.create_task(speak())
    for _ in range(3):
        await asyncio.sleep(0.3)
        await server.kill()
        await server.restart()
    await speaking
    assert await world.ended(request, within_s=20) == text
    assert await until_async(lambda: settled(world), within_s=10)


def test_the_stage_is_small() -> None:
    """It imports neither torch nor vllm nor transformers, and needs less than 200 MB."""
    code = (
        "import stages.postprocess.stage, sys, psutil;"
        "print([name for name in ('torch', 'vllm', 'transformers') if name in sys.modules],"
        " psutil.Process().memory_info().rss)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    found, _, size = done.stdout.strip().rpartition(" ")
    assert found == "[]"
    assert int(size) < 200 * 2**20


async def _owner_is(world: World, instance: str) -> bool:
    return instance in (await owners(world.connection)).values()


async def _all_begun(world: World, requests: list[Request]) -> bool:
    return all([await world.text_so_far(request) for request in requests])
