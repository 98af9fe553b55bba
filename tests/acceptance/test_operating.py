"""What operators and orchestrators do to a pipeline that works: restart it piece by piece, lose patience, probe it."""

import asyncio
import itertools
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import psutil
import pytest

from broker.free_ports import free_ports
from headrace import Headrace
from load.pipeline import Pipeline
from tests.acceptance.health import watching
from tests.acceptance.processes import STAGES, deaths, events, processes_of, times_ready
from tests.acceptance.streams import Stream, begin, begun, ended
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import Wiretap, listening

pytestmark = pytest.mark.timeout(240)

GRACE_S = 4
REPLICAS = 2

WORDS = {
    "preprocess": ("preprocess.ticketed", "preprocess.refused"),
    "inference": ("inference.ended",),
    "postprocess": ("postprocess.ended", "postprocess.refused"),
}
"""How a stage that works on a request says that it is done with it. Schedulers say it at debug level."""

numbers = itertools.count(1)
"""Every request of this file gets one of its own."""


@pytest.fixture(scope="module")
def first_port() -> int:
    """Where the first process answers probes; the others follow, one a process, in the order of a request's way."""
    return free_ports(REPLICAS * len(STAGES)).start


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory, first_port: int) -> Iterator[Pipeline]:
    """Two of each stage, whose grace time is shorter than many answers, each with a health port."""
    arguments = ["--engine", "simulated", *(text for each in STAGES for text in ("--replicas", f"{each}={REPLICAS}"))]
    arguments += ["--set", "inference.simulated_step_ms=5", "--set", f"process.grace_s={GRACE_S}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HEALTH_PORT", str(first_port))
        running = Pipeline(tmp_path_factory.mktemp("operating"), arguments)
    yield running
    assert running.stop() == 0, running.output[-3000:]


@asynccontextmanager
async def load(client: Headrace, streams_at_once: int) -> AsyncGenerator[list[Stream]]:
    """So many answers at any moment, of different lengths, each held against the truth; at the end all of them end."""
    asked: list[Stream] = []
    enough = asyncio.Event()

    async def one_after_another() -> None:
        while not enough.is_set():
            number = next(numbers)
            asked.append(begin(client, number, 400 + number * 37 % 1600))
            await ended(asked[-1:])

    async with asyncio.TaskGroup() as group:
        for _ in range(streams_at_once):
            group.create_task(one_after_another())
        yield asked
        enough.set()


async def test_a_rolling_restart_under_load(pipeline: Pipeline) -> None:
    """E4: each process in turn gets SIGTERM and is started again: it drains, or hands back, and exits with 0.

    Twenty streams at any moment: none is lost, none fails, none is told twice.
    """
    async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap:
        async with load(client, 20) as asked:
            await until(lambda: len(asked) >= 20, "load")
            await begun(asked[:20])
            for stage in STAGES:
                for process in processes_of(pipeline, stage):
                    await restarted(pipeline, stage, process)
        await tap.settled()
        assert await asyncio.gather(*(tap.terminal(stream.told.id) for stream in asked)) == ["length"] * len(asked)
    ends = {(line["child"], line["status"]) for line in deaths(pipeline)}
    assert ends == {(f"{stage}.{number}", 0) for stage in STAGES for number in range(REPLICAS)}
    resumed = sum(count > 1 for count in tap.opens.values())
    gap_s = max(stream.told.longest_gap_s for stream in asked)
    print(
        f"{len(asked)} answers over a rolling restart, {resumed} of them resumed elsewhere, longest gap {gap_s:.2f} s"
    )
    assert resumed, "the grace time was long enough for everything: nothing was handed back"


async def restarted(pipeline: Pipeline, stage: str, process: psutil.Process) -> None:
    """SIGTERM; returns when the next one is ready."""
    ready = times_ready(pipeline, stage)
    process.send_signal(signal.SIGTERM)
    await until(lambda: times_ready(pipeline, stage) > ready, f"a new {stage}", seconds=GRACE_S + 30)


async def test_a_second_signal_ends_a_worker_at_once(pipeline: Pipeline) -> None:
    """E4: it does not wait for what it still has in hand; that goes on elsewhere as after any death."""
    async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap:
        streams = [begin(client, next(numbers), 1000) for _ in range(8)]
        await begun(streams)
        victim = processes_of(pipeline, "inference")[0]
        victim.send_signal(signal.SIGTERM)
        await until(lambda: drains(tap), "a worker that drains")
        victim.send_signal(signal.SIGTERM)
        by_signal = 128 + signal.SIGTERM
        await until(
            lambda: any(line["status"] == by_signal for line in deaths(pipeline)), "its end by the second signal"
        )
        await ended(streams)
        await tap.settled()
        assert [await tap.terminal(stream.told.id) for stream in streams] == ["length"] * 8


def drains(tap: Wiretap) -> bool:
    return any(status.state == "draining" and status.running for status in tap.alive)


async def test_one_line_for_the_end_of_each_request_at_each_stage(pipeline: Pipeline) -> None:
    """E12: answered, cancelled, refused or too late: preprocess, the worker and postprocess each say one word of it."""
    async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap:
        answered = [begin(client, next(numbers), 20) for _ in range(10)]
        gone = [begin(client, next(numbers), 8000) for _ in range(4)]
        late = [begin(client, next(numbers), 8000, deadline_s=2.0) for _ in range(4)]
        refused = [begin(client, next(numbers), 20, temperature=-1.0) for _ in range(4)]
        await begun([*gone, *late])
        for stream in gone:
            await client.cancel(stream.told.id)
        await ended(answered)
        await asyncio.gather(*(stream.done for stream in (*gone, *late, *refused)), return_exceptions=True)
        await tap.settled()
    for stage, words in WORDS.items():
        said = Counter(line["request_id"] for word in words for line in events(pipeline, stage, word))
        asked = [*answered, *gone, *late, *([] if stage == "inference" else refused)]
        assert {said[f"default.{stream.told.id}"] for stream in asked} == {1}, stage


async def test_probes_are_answered_under_a_burst(pipeline: Pipeline, first_port: int) -> None:
    """E3: 1,000 jobs at once. All processes say that they live, and none is started again; the slowest is printed."""
    before = len(deaths(pipeline))
    async with Headrace(pipeline.url) as client, AsyncExitStack() as stack:
        ports = range(first_port, first_port + REPLICAS * len(STAGES))
        seen = [await stack.enter_async_context(watching(port, "/live", "/ready")) for port in ports]
        await ended([begin(client, next(numbers), 4) for _ in range(1000)], seconds=120)
    assert all(each.statuses("/live") == {200} for each in seen)
    assert all(each.statuses("/ready") == {200} for each in seen)
    assert all(len(each.answers["/live"]) >= 3 for each in seen), "too short to show anything"
    assert len(deaths(pipeline)) == before
    slowest = {path: max(each.slowest(path) for each in seen) for path in ("/live", "/ready")}
    print(f"slowest probe of all processes: live {slowest['/live']:.3f} s, ready {slowest['/ready']:.3f} s")
