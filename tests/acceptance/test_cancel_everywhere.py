"""A cancel reaches a request wherever it is: one `cancelled` terminal, nothing left of it, idle engines (case E9)."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from broker import subjects
from headrace import RequestFault
from load.pipeline import Pipeline
from load.simulated_truth import prompt_of
from tests.acceptance.processes import events, processes_of, stopped
from tests.acceptance.scene import SLOTS, TICKETS, Scene, crowded, looking_on
from tests.acceptance.streams import Stream, ended
from tests.acceptance.waiting import until

pytestmark = pytest.mark.timeout(120)

IDLE_WITHIN_S = 5.0
"""A second on a machine that has nothing else to do; the figure itself is printed."""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    yield from crowded(tmp_path_factory.mktemp("cancels"))


@pytest_asyncio.fixture
async def scene(pipeline: Pipeline) -> AsyncIterator[Scene]:
    async with looking_on(pipeline) as scene:
        yield scene


async def test_queued_in_requests(scene: Scene) -> None:
    """Preprocess stands still: the client is answered all the same; no ticket ever comes of it, nor a second choice."""
    with stopped(*processes_of(scene.pipeline, "preprocess")):
        streams = [scene.ask(), scene.ask()]
        await until(lambda: scene.stored(subjects.REQUESTS, 2), "both in REQUESTS")
        await scene.cancelled(*streams)
    await scene.nothing_left_of(*streams)
    ticketed = {line["request_id"] for line in events(scene.pipeline, "preprocess", "preprocess.ticketed")}
    assert not ticketed & {f"default.{stream.told.id}" for stream in streams}


async def test_all_choices_of_a_queued_request(scene: Scene) -> None:
    """The owner knows of the first choice alone as long as nobody has read the request; then all of them end."""
    with stopped(*processes_of(scene.pipeline, "preprocess")):
        stream = scene.ask(n=3)
        await until(lambda: scene.stored(subjects.REQUESTS, 1), "it is in REQUESTS")
        await scene.cancelled(stream)
    await scene.nothing_left_of(stream)
    for choice in (1, 2):
        await until(lambda choice=choice: _ended(scene, stream, choice), "the other choices' terminals")
        assert await scene.tap.terminal(stream.told.id, choice) == "cancelled"


async def test_in_tokenization(scene: Scene) -> None:
    """A prompt of megabytes takes its time: what comes of it goes no further."""
    text = "the river turns the wheel quiet and down again " * 120_000
    stream = scene.ask(prompt=text)
    await until(lambda: scene.held(subjects.REQUESTS, 1), "preprocess has it", every_s=0.01)
    await scene.cancelled(stream)
    assert await scene.tap.messages(subjects.REQUESTS) == 1, "cancelled too late to show anything"
    await scene.nothing_left_of(stream)
    assert not scene.tap.opens[f"default.{stream.told.id}"]


async def test_held_by_a_scheduler(scene: Scene) -> None:
    """Every slot is taken: what waits in TICKETS ends at once, what runs goes on."""
    running = await scene.fill()
    waiting = [scene.ask() for _ in range(3)]
    await until(lambda: scene.held(subjects.TICKETS, SLOTS + 3), "tickets in the window")
    for stream in waiting:
        await scene.client.cancel(stream.told.id)
        with pytest.raises(RequestFault, match="cancelled"):
            await stream.done
    await until(lambda: scene.stored(subjects.TICKETS, SLOTS), "their tickets gone")
    assert scene.tap.running == SLOTS
    await scene.cancelled(*running)
    await scene.nothing_left_of(*running, *waiting)


async def test_with_no_scheduler(scene: Scene) -> None:
    """Tickets that nobody holds: the owner answers; the ticket goes once a scheduler is back, and costs no GPU time."""
    computed = scene.tap.tokens_in
    with stopped(*processes_of(scene.pipeline, "schedule")):
        stream = scene.ask()
        await until(lambda: scene.stored(subjects.TICKETS, 1), "a ticket")
        await scene.cancelled(stream)
    await scene.nothing_left_of(stream)
    assert scene.tap.tokens_in == computed


async def test_parked_by_a_full_queue(scene: Scene) -> None:
    """No room in TICKETS: what preprocess parks ends at once, and the requests before and behind it go on."""
    running = await scene.fill()
    waiting = [scene.ask(20) for _ in range(TICKETS - SLOTS)]
    await until(lambda: scene.stored(subjects.TICKETS, TICKETS), "a full queue")
    parked = [scene.ask(20) for _ in range(4)]
    await until(lambda: scene.held(subjects.REQUESTS, 4), "parked requests")
    for stream in parked[:2]:
        await scene.client.cancel(stream.told.id)
        with pytest.raises(RequestFault, match="cancelled"):
            await stream.done
    await until(lambda: scene.stored(subjects.REQUESTS, 2), "out of REQUESTS")
    for stream in running:
        await scene.client.cancel(stream.told.id)
    await ended([*waiting, *parked[2:]])
    await asyncio.gather(*(stream.done for stream in running), return_exceptions=True)
    await scene.nothing_left_of(*running, *parked[:2])


async def test_in_prefill(scene: Scene) -> None:
    """Seconds of prefill are called off: the engine is idle within the step, and a short request is not held up."""
    long = scene.ask(prompt=prompt_of(1, length=20_000))
    await until(lambda: scene.tap.running == 1, "prefill")
    idle_s = await scene.cancelled(long)
    short = scene.ask(5)
    await ended([short])
    print(f"in prefill (16 s of it left): idle {idle_s:.2f} s after the cancel")
    assert idle_s < IDLE_WITHIN_S
    assert not long.told.ids
    await scene.nothing_left_of(long)


async def test_while_decoding(scene: Scene) -> None:
    """What the client has is the truth up to there; the slots are free within a second."""
    streams = await scene.fill()
    idle_s = await scene.cancelled(*streams)
    print(f"decoding: idle {idle_s:.2f} s after the cancel")
    assert idle_s < IDLE_WITHIN_S
    await scene.nothing_left_of(*streams)


async def test_in_postprocess(scene: Scene) -> None:
    """Its tokens lie in a journal that nobody reads: the engine is idle all the same, its answer ends when one does."""
    with stopped(*processes_of(scene.pipeline, "postprocess")):
        stream = scene.ask()
        await until(lambda: bool(scene.tap.running), "it runs")
        await until(lambda: scene.journals_hold(20), "tokens in the journal")
        begin_at = time.monotonic()
        await scene.client.cancel(stream.told.id)
        await until(lambda: not scene.tap.running, "idle engines", every_s=0.01)
        idle_s = time.monotonic() - begin_at
    with pytest.raises(RequestFault, match="cancelled"):
        await stream.done
    print(f"without a postprocess: idle {idle_s:.2f} s after the cancel")
    await scene.nothing_left_of(stream)


async def test_too_late(scene: Scene) -> None:
    """The engine has said everything, only the owner has not read it yet: one terminal, and the whole text with it."""
    with stopped(*processes_of(scene.pipeline, "postprocess")):
        stream = scene.ask(30)
        await until(lambda: f"default.{stream.told.id}" in scene.tap.finished, "the engine is done")
        await scene.client.cancel(stream.told.id)
    await ended([stream])
    await scene.tap.settled()
    assert await scene.tap.terminal(stream.told.id) == "length"


async def _ended(scene: Scene, stream: Stream, choice: int) -> bool:
    return bool(await scene.tap.terminals(stream.told.id, choice))
