"""A request past its deadline ends with one `deadline` terminal wherever it is, and costs no GPU time (case E13)."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from broker import subjects
from headrace import RequestFault
from load.pipeline import Pipeline
from load.simulated_truth import prompt_of, true_ids
from tests.acceptance.processes import events, processes_of, stopped
from tests.acceptance.scene import SLOTS, TICKETS, Scene, crowded, looking_on
from tests.acceptance.streams import Stream, ended
from tests.acceptance.waiting import until

pytestmark = pytest.mark.timeout(120)

DEADLINE_S = 1.0


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    yield from crowded(tmp_path_factory.mktemp("deadlines"))


@pytest_asyncio.fixture
async def scene(pipeline: Pipeline) -> AsyncIterator[Scene]:
    async with looking_on(pipeline) as scene:
        yield scene


@pytest.mark.parametrize(
    ("stage", "queue"),
    [("preprocess", subjects.REQUESTS), ("schedule", subjects.TICKETS), ("inference", subjects.TICKETS)],
)
async def test_while_the_next_stage_stands_still(scene: Scene, stage: str, queue: str) -> None:
    """It lies in a queue, or in a grant that nobody reads, until after its deadline: dropped on arrival."""
    computed = scene.tap.tokens_in
    with stopped(*processes_of(scene.pipeline, stage)):
        stream = scene.ask(deadline_s=DEADLINE_S)
        await until(lambda: scene.stored(queue, 1), "it is queued")
        await asyncio.sleep(2 * DEADLINE_S)
    await past_its_deadline(stream)
    await scene.nothing_left_of(stream, fault="deadline")
    await one_more_heartbeat(scene)
    assert scene.tap.tokens_in == computed
    ticketed = {line["request_id"] for line in events(scene.pipeline, "preprocess", "preprocess.ticketed")}
    assert (f"default.{stream.told.id}" in ticketed) == (stage != "preprocess")


async def test_held_by_a_scheduler(scene: Scene) -> None:
    """Every slot is taken for longer than it has time: it ends in its time, and no worker hears of it."""
    running = await scene.fill()
    computed = scene.tap.tokens_in
    waiting = [scene.ask(deadline_s=DEADLINE_S) for _ in range(3)]
    for stream in waiting:
        await past_its_deadline(stream)
    assert scene.tap.running == SLOTS
    await scene.cancelled(*running)
    await scene.nothing_left_of(*waiting, fault="deadline")
    assert scene.tap.tokens_in == computed


async def test_parked_by_a_full_queue(scene: Scene) -> None:
    """No room in TICKETS: it ends in its time, what waits before it goes on."""
    running = await scene.fill()
    waiting = [scene.ask(20) for _ in range(TICKETS - SLOTS)]
    await until(lambda: scene.stored(subjects.TICKETS, TICKETS), "a full queue")
    parked = [scene.ask(20, deadline_s=DEADLINE_S) for _ in range(2)]
    for stream in parked:
        await past_its_deadline(stream)
    await until(lambda: scene.stored(subjects.REQUESTS, 0), "out of REQUESTS")
    for stream in running:
        await scene.client.cancel(stream.told.id)
    await ended(waiting)
    await scene.nothing_left_of(*parked, fault="deadline")


async def test_in_prefill(scene: Scene) -> None:
    """What is not begun to be answered in time is given up in the middle of its prefill."""
    stream = scene.ask(prompt=prompt_of(2, length=20_000), deadline_s=DEADLINE_S)
    await past_its_deadline(stream)
    await until(lambda: not scene.tap.running, "idle engines")
    assert not stream.told.ids
    await scene.nothing_left_of(stream, fault="deadline")


async def test_while_decoding(scene: Scene) -> None:
    """What the client has by then is the truth up to there."""
    stream = scene.ask(deadline_s=DEADLINE_S)
    await past_its_deadline(stream)
    assert stream.told.ids == true_ids(stream.told.prompt, len(stream.told.ids))
    assert len(stream.told.ids) > 10
    await scene.nothing_left_of(stream, fault="deadline")


async def test_while_postprocess_stands_still(scene: Scene) -> None:
    """The engine stops in time although nobody reads what it says; the client hears of it afterwards."""
    with stopped(*processes_of(scene.pipeline, "postprocess")):
        stream = scene.ask(deadline_s=DEADLINE_S)
        await until(lambda: scene.journals_hold(5), "tokens in the journal")
        await one_more_heartbeat(scene)
        await until(lambda: not scene.tap.running, "idle engines")
    await past_its_deadline(stream)
    await scene.nothing_left_of(stream, fault="deadline")


async def past_its_deadline(stream: Stream) -> None:
    with pytest.raises(RequestFault, match="deadline"):
        async with asyncio.timeout(30):
            await stream.done


async def one_more_heartbeat(scene: Scene) -> None:
    """What workers have computed by now is told."""
    sent = {name: status.sent for name, status in scene.tap.workers.items()}
    await until(lambda: all(scene.tap.workers[name].sent > number for name, number in sent.items()), "a heartbeat")
