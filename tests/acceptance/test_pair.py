"""Two replicas of every stage: work is shared, answers are whole and in order, and neither coming nor going shows."""

import asyncio
import signal
from typing import Any

import msgspec
import pytest

from broker.connection import BrokerOptions, Connection
from headrace import Headrace, RequestFault
from load.pipeline import Pipeline, terminate
from load.simulated_truth import prompt_of, true_ids, true_text
from tests.acceptance.waiting import eventually

pytestmark = pytest.mark.timeout(120)


async def answer(client: Headrace, number: int, tokens: int, **options: Any) -> tuple[str, list[int], int]:
    """One streamed answer: its text, its ids and the number of chunks."""
    text, ids, chunks = "", list[int](), 0
    async for chunk in client.stream(prompt=prompt_of(number), max_tokens=tokens, **options):
        assert chunk.text or chunk.finish or chunk.ids, "an empty chunk"
        assert (chunk.token_from, chunk.text_from) == (len(ids), len(text))
        text, ids, chunks = text + chunk.text, ids + chunk.ids, chunks + 1
    return text, ids, chunks


async def expect(client: Headrace, number: int, tokens: int, **options: Any) -> None:
    text, ids, _ = await answer(client, number, tokens, **options)
    wanted = true_ids(prompt_of(number), tokens)
    assert ids == wanted
    assert text == true_text(wanted)


async def test_many_at_once(pair: Pipeline) -> None:
    """64 streams at once, each of 64 tokens: every one has exactly its ids and its text, in several pieces."""
    async with Headrace(pair.url) as client:
        await asyncio.gather(*(expect(client, number, 64) for number in range(64)))
        _, _, chunks = await answer(client, 1000, 64)
    assert chunks > 8


async def test_whole_and_two_choices(pair: Pipeline) -> None:
    """`complete` gives the whole text with usage; n = 2 gives two choices, each with an end of its own."""
    async with Headrace(pair.url) as client:
        done = await client.complete(prompt=prompt_of(7), max_tokens=33, n=2)
    wanted = true_ids(prompt_of(7), 33)
    assert [choice.text for choice in done.choices] == [true_text(wanted)] * 2
    for choice in done.choices:
        assert choice.finish == "length"
        assert choice.usage is not None
        assert (choice.usage.prompt_tokens, choice.usage.completion_tokens) == (len(prompt_of(7)), 33)


async def test_work_is_shared(pair: Pipeline) -> None:
    """Both workers generate, both postprocess replicas own half of the partitions, both schedulers grant."""
    async with Headrace(pair.url) as client:
        await asyncio.gather(*(expect(client, number, 32) for number in range(2000, 2096)))
    status = pair.status()
    assert len(status["workers"]) == 2
    assert all(worker["tokens_out"] > 200 for worker in status["workers"])
    owners = [partition["owner"] for partition in status["partitions"]]
    assert sorted(owners.count(owner) for owner in set(owners)) == [4, 4]


async def test_stop_string_over_tokens(pair: Pipeline) -> None:
    """A stop string that spreads over token borders ends the answer before it; the rest is never sent."""
    wanted = true_text(true_ids(prompt_of(5), 60))
    middle = len(wanted) // 2
    stop = wanted[middle - 4 : middle + 4]
    async with Headrace(pair.url) as client:
        text, _, _ = await answer(client, 5, 60, stop=stop)
        done = await client.complete(prompt=prompt_of(5), max_tokens=60, stop=[stop], include_stop=True)
    cut = wanted.index(stop)
    assert text == wanted[:cut]
    assert done.text == wanted[: cut + len(stop)]
    assert (done.choices[0].finish, done.choices[0].stop_reason) == ("stop", stop)
    costs = done.choices[0].costs
    assert costs is not None
    assert costs.schedule.service > 0, "a stop string ends the answer before its worker has told everything"


async def test_postprocess_comes_and_goes(pair: Pipeline) -> None:
    """A replica more of postprocess, then one less, while 8 streams run: no character is lost or doubled."""
    async with Headrace(pair.url) as client:
        running = [asyncio.create_task(expect(client, number, 4000)) for number in range(3000, 3008)]
        await asyncio.sleep(1)
        third = await asyncio.to_thread(pair.start_stage, "postprocess")
        await asyncio.to_thread(eventually, lambda: len(owners_of(pair)) == 3, 20, "three owners")
        assert not all(task.done() for task in running), "the streams ended too early to show anything"
        assert await asyncio.to_thread(terminate, third) == 0
        await asyncio.to_thread(eventually, lambda: len(owners_of(pair)) == 2, 20, "two owners again")
        await asyncio.gather(*running)


def owners_of(pipeline: Pipeline) -> set[str]:
    return {partition["owner"] for partition in pipeline.status()["partitions"]} - {""}


@pytest.mark.parametrize(
    ("request_options", "code", "param"),
    [
        ({"messages": []}, "invalid_request", "messages"),
        ({"prompt": "x", "model": "nope"}, "model_not_found", "model"),
        ({"prompt": [1] * 9000}, "context_length_exceeded", "prompt"),
        ({"prompt": "x", "temperature": -1.0}, "invalid_request", "sampling.temperature"),
        ({"prompt": "x", "top_p": 0.0}, "invalid_request", "sampling.top_p"),
        ({"prompt": "x", "stop": ""}, "invalid_request", "stop"),
        ({"prompt": [1, 999_999]}, "invalid_request", "prompt[1]"),
        ({"prompt": "x", "logit_bias": {"999999": 1.0}}, "invalid_request", "sampling.logit_bias"),
        ({"prompt": "x", "n": 0}, "invalid_request", "n"),
    ],
)
async def test_faults_name_their_field(pair: Pipeline, request_options: dict[str, Any], code: str, param: str) -> None:
    """What is wrong with a request ends it at once with a fault that names the field; neighbours are served."""
    async with Headrace(pair.url) as client:
        neighbour = asyncio.create_task(expect(client, 11, 40))
        with pytest.raises(RequestFault) as raised:
            await asyncio.wait_for(client.complete(**request_options), 10)
        assert (raised.value.fault.code, raised.value.fault.param.partition(".9")[0]) == (code, param)
        await neighbour


async def test_the_same_id_again(pair: Pipeline) -> None:
    """An id that was answered gives the same answer to a client that comes later; one at a time in each client."""
    async with Headrace(pair.url) as client:
        first = asyncio.create_task(client.complete(prompt=prompt_of(9), max_tokens=30, request_id="again"))
        await asyncio.sleep(0.05)
        with pytest.raises(RequestFault, match="already"):
            await client.complete(prompt=prompt_of(9), max_tokens=30, request_id="again")
        text = (await first).text
    async with Headrace(pair.url) as client:
        done = await asyncio.wait_for(client.complete(prompt="other", max_tokens=5, request_id="again"), 20)
    assert text == done.text == true_text(true_ids(prompt_of(9), 30))


async def test_garbage_in_cancels_and_journals(pair: Pipeline) -> None:
    """What anybody can write into cancels, and what nobody should into journals, disturbs no request and no cancel."""
    connection = await Connection.open(BrokerOptions(pair.url))
    for session in ("a" * 5000, "a b", "*", ""):
        await connection.publish("$KV.hr_cancelled.evil.x1", msgspec.msgpack.encode({"v": 1, "session": session}))
    await connection.publish("$KV.hr_cancelled.evil.a/b", msgspec.msgpack.encode({"v": 1, "session": "s"}))
    end = {"key": "t.e", "choice": 0, "session": "a b", "fault": {"code": "internal", "message": "x"}}
    opened = {"key": "", "choice": -1, "model": "", "session": "", "sequence": -5, "ack": "a b", "fresh": True}
    for partition in range(8):
        for entry in ({"ends": [end]}, {"opens": [opened]}, {"tokens": 3}):
            body = msgspec.msgpack.encode({"v": 1, "origin": "x", **entry})
            await connection.publish(f"hr.journal.{partition}", body)
    await connection.close()
    async with Headrace(pair.url) as client:
        await asyncio.wait_for(asyncio.gather(*(expect(client, number, 20) for number in range(5000, 5024))), 30)
        for number in range(8):
            running = asyncio.create_task(
                client.complete(prompt=prompt_of(1), max_tokens=8000, request_id=f"c{number}")
            )
            await asyncio.sleep(0.2)
            await client.cancel(f"c{number}")
            with pytest.raises(RequestFault, match="cancelled"):
                await asyncio.wait_for(running, 5)


async def test_leaving_the_loop_cancels(pair: Pipeline) -> None:
    """A client that leaves its stream frees the worker within a second or two."""
    async with Headrace(pair.url) as client:
        async for chunk in client.stream(prompt=prompt_of(1), max_tokens=8000):
            if chunk.token_from > 5:
                break
        await asyncio.to_thread(
            eventually, lambda: sum(w["running"] for w in pair.status()["workers"]) == 0, 6, "idle workers"
        )


async def test_a_killed_worker_is_replaced(pair: Pipeline) -> None:
    """A worker killed in mid-answer: the answers go on elsewhere with the next token, none missing, none twice."""
    async with Headrace(pair.url) as client:
        running = [asyncio.create_task(expect(client, number, 1500)) for number in range(4000, 4016)]
        await asyncio.sleep(1.5)
        victim = next(iter(children_of(pair, "inference")))
        victim.send_signal(signal.SIGKILL)
        await asyncio.gather(*running)


def children_of(pipeline: Pipeline, stage: str) -> list[Any]:
    import psutil

    children = psutil.Process(pipeline.process.pid).children()
    return [child for child in children if child.cmdline()[-2:] == ["stage", stage]]
