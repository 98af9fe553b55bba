"""Clients die, leave, come back and dawdle; their requests go on, and whoever reads later reads the whole answer."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import psutil
import pytest

from broker import subjects
from broker.answer_stream import BACKLOG
from broker.connection import BrokerOptions, Connection
from broker.publisher import Publisher
from headrace import Headrace
from load.pipeline import ROOT, Pipeline
from load.simulated_truth import prompt_of, true_ids, true_text
from schemas.codec import encode, pack_ids
from schemas.control import DeadAttempt, DeadLetter
from schemas.ticket import EngineSampling, Ticket
from tests.acceptance.processes import processes_of, stopped

pytestmark = pytest.mark.timeout(180)

CLIENT = """
import asyncio, json, sys
from headrace import Headrace

async def main(url, request, prompt, tokens):
    text, ids = "", []
    async with Headrace(url) as client:
        async for chunk in client.stream(prompt=json.loads(prompt), max_tokens=int(tokens), request_id=request):
            text, ids = text + chunk.text, ids + chunk.ids
            print(json.dumps([text, ids, chunk.finish]), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@dataclass
class Had:
    """What a client has of an answer."""

    text: str = ""
    ids: list[int] = field(default_factory=list[int])
    finish: str = ""


@contextlib.asynccontextmanager
async def client_process(
    pipeline: Pipeline, request: str, number: int, tokens: int
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A client in a process of its own, that says all it has after every chunk."""
    arguments = (pipeline.url, request, json.dumps(prompt_of(number)), str(tokens))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, *arguments, stdout=asyncio.subprocess.PIPE, cwd=ROOT, limit=1 << 24
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def heard(process: asyncio.subprocess.Process, tokens: int) -> Had:
    """What the client had when it first had so many tokens, or the end."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while line := await process.stdout.readline():
            text, ids, finish = json.loads(line)
            if len(ids) >= tokens or finish:
                return Had(text, ids, finish)
    raise AssertionError("the client ended before")


def assert_whole(number: int, tokens: int, text: str, ids: list[int]) -> None:
    wanted = true_ids(prompt_of(number), tokens)
    assert ids == wanted
    assert text == true_text(wanted)


async def read_on(client: Headrace, request: str, had: Had) -> Had:
    """The rest of the answer, put behind what was there, exactly."""
    text, ids, finish = had.text, list(had.ids), ""
    async with asyncio.timeout(120):
        async for chunk in client.attach(request, from_token=len(ids), from_text=len(text)):
            assert (chunk.token_from, chunk.text_from) == (len(ids), len(text))
            text, ids, finish = text + chunk.text, ids + chunk.ids, chunk.finish
    return Had(text, ids, finish)


async def test_a_client_killed_in_mid_answer(pair: Pipeline) -> None:
    """SIGKILL: nobody cancels, the answer goes on, and another client goes on with the next token and character."""
    tokens = 1500
    async with client_process(pair, "killed", 71, tokens) as process:
        had = await heard(process, 60)
        process.send_signal(signal.SIGKILL)
    assert not had.finish
    async with Headrace(pair.url) as client:
        whole = await read_on(client, "killed", had)
        assert whole.finish == "length"
        assert_whole(71, tokens, whole.text, whole.ids)
        again = await client_text(client, "killed")
    assert again == whole.text
    command = await asyncio.to_thread(pair.run, "attach", "killed", "--json", "--from-token", str(tokens - 3))
    (choice,) = json.loads(command.stdout)["choices"]
    assert choice["ids"] == whole.ids[-3:]
    assert whole.text.endswith(choice["text"])


async def client_text(client: Headrace, request: str) -> str:
    return "".join([chunk.text async for chunk in client.attach(request)])


async def test_a_reader_leaves_and_the_request_goes_on(pair: Pipeline) -> None:
    """Leaving `attach` cancels nothing: who asked gets the whole answer."""
    async with Headrace(pair.url) as asking, Headrace(pair.url) as reading:
        asked = asyncio.create_task(asking.complete(prompt=prompt_of(72), max_tokens=600, request_id="left"))
        chunks = reading.attach("left")
        async for chunk in chunks:
            if chunk.ids:
                break
        await chunks.aclose()
        assert not asked.done()
        done = await asked
    assert_whole(72, 600, done.text, done.choices[0].ids)


async def test_reading_through_deaths(pair: Pipeline) -> None:
    """All workers, then all owners killed while somebody reads along: no token is missing there, none comes twice."""
    tokens = 2500
    async with client_process(pair, "through", 73, tokens) as process, Headrace(pair.url) as client:
        had = await heard(process, 20)
        process.send_signal(signal.SIGKILL)
        reading = asyncio.create_task(read_on(client, "through", had))
        for stage in ("inference", "postprocess"):
            await asyncio.sleep(0.5)
            assert not reading.done(), "ended too early to show anything"
            for victim in processes_of(pair, stage):
                victim.kill()
        whole = await reading
    assert_whole(73, tokens, whole.text, whole.ids)


async def test_a_reader_that_dawdles(pair: Pipeline) -> None:
    """A client that does not read for the whole answer costs nobody time, and then gets all of it at once."""
    tokens = BACKLOG + 600
    async with Headrace(pair.url) as slow, Headrace(pair.url) as quick:
        chunks = slow.stream(prompt=prompt_of(74), max_tokens=tokens, request_id="slow")
        first = await anext(chunks)
        whole = await read_on(quick, "slow", Had())
        assert_whole(74, tokens, whole.text, whole.ids)
        rest = [chunk async for chunk in chunks]
    ids = [token for chunk in (first, *rest) for token in chunk.ids]
    assert_whole(74, tokens, "".join(chunk.text for chunk in (first, *rest)), ids)


async def test_a_client_process_that_stands_still(pair: Pipeline) -> None:
    """SIGSTOP of the client until its answer has ended, then SIGCONT: its text is whole, its neighbour never waited."""
    tokens = 1200
    async with client_process(pair, "still", 75, tokens) as process, Headrace(pair.url) as client:
        had = await heard(process, 20)
        with stopped(psutil.Process(process.pid)):
            whole = await read_on(client, "still", had)
        told = await heard(process, tokens + 1)
    assert_whole(75, tokens, whole.text, whole.ids)
    assert_whole(75, tokens, told.text, told.ids)


async def test_a_dead_letter_sent_again(pair: Pipeline) -> None:
    """A ticket in DEAD becomes a request with a new id, whose answer is the right one; then its letter is removed."""
    ticket = Ticket(
        tenant="default",
        request="poisonous",
        choice=0,
        session="gone",
        model="simulated",
        prompt=pack_ids(prompt_of(76)),
        sampling=EngineSampling(max_tokens=40),
        partition=subjects.partition_of("default.poisonous", 8),
        deadline_ms=60_000,
    )
    letter = DeadLetter(
        subject="hr.ticket.simulated.default",
        reason="three workers in a row died of it",
        payload=encode(ticket),
        key=ticket.key,
        attempts=[DeadAttempt(1, 0, "w"), DeadAttempt(2, 0, "w"), DeadAttempt(3, 0, "w")],
    )
    connection = await Connection.open(BrokerOptions(pair.url))
    await Publisher(connection).publish(subjects.dead("simulated"), encode(letter))
    await connection.close()
    done = await asyncio.to_thread(pair.run, "dead", "retry", "poisonous", "--remove", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["id"] != "poisonous"
    assert_whole(76, 40, answer["choices"][0]["text"], answer["choices"][0]["ids"])
    listed = await asyncio.to_thread(pair.run, "dead", "list", "--json")
    assert json.loads(listed.stdout) == []


async def test_two_choices_read_by_somebody_else(pair: Pipeline) -> None:
    """Who attaches does not know how many choices were asked for, and gets all of them."""
    async with Headrace(pair.url) as asking, Headrace(pair.url) as reading:
        chunks = asking.stream(prompt=prompt_of(77), max_tokens=200, n=3, request_id="three")
        await anext(chunks)
        texts: dict[int, str] = {}
        async for chunk in reading.attach("three"):
            texts[chunk.choice] = texts.get(chunk.choice, "") + chunk.text
        async for _ in chunks:
            pass
    assert texts == dict.fromkeys(range(3), true_text(true_ids(prompt_of(77), 200)))
