"""SIGKILL for one process of each stage while answers run: nobody who waits for an answer sees that it died."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from broker import subjects
from headrace import Headrace
from load.pipeline import Pipeline
from tests.acceptance.processes import STAGES, processes_of, stopped, times_ready
from tests.acceptance.streams import begin, begun, ended
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import listening

pytestmark = pytest.mark.timeout(180)

TICKET_ACK_WAIT_S = 4.0


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Two schedulers, two workers of four slots each, so that tickets have to wait."""
    arguments = ["--engine", "simulated", "--replicas", "schedule=2", "--replicas", "inference=2"]
    for setting in (
        "inference.simulated_step_ms=5",
        "inference.slots=4",
        f"topology.ticket_ack_wait_s={TICKET_ACK_WAIT_S}",
    ):
        arguments += ["--set", setting]
    pipeline = Pipeline(tmp_path_factory.mktemp("narrow"), arguments)
    yield pipeline
    assert pipeline.stop() == 0, pipeline.output[-3000:]


@pytest.mark.parametrize("stage", STAGES)
async def test_one_of_each_stage_in_mid_answer(pair: Pipeline, stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every text is right, each answer has one terminal result, nothing is left over; the longest gap is printed.

    While a scheduler or preprocess dies streams do not stall at all: what passes between two tokens is far below the
    time after which anything of theirs would be handed out again.
    """
    first = 1000 * STAGES.index(stage)
    async with Headrace(pair.url) as client, listening(pair.url) as tap:
        ready = times_ready(pair, stage)
        streams = [begin(client, first + number, 700) for number in range(12)]
        await begun(streams)
        victim = processes_of(pair, stage)[0]
        victim.send_signal(signal.SIGKILL)
        await asyncio.to_thread(victim.wait, 30)  # what the broker still sends to it comes back after the ack wait
        late = [begin(client, first + number, 20) for number in range(100, 112)]
        gap_s = await ended(streams)
        await ended(late)
        await until(lambda: times_ready(pair, stage) > ready, "the next process of the stage")
        await tap.settled()
        assert [await tap.terminal(stream.told.id) for stream in (*streams, *late)] == ["length"] * 24
    with capsys.disabled():
        print(f" longest gap when {stage} dies: {gap_s:.2f} s", end="")
    assert gap_s < (4.5 if stage in ("preprocess", "schedule") else 20)  # requests are handed out again after 5 s


async def test_a_worker_whose_schedulers_died_before_it(pair: Pipeline) -> None:
    """Those that start in their place granted nothing to it, and still what it ran goes on long before the ack wait."""
    async with Headrace(pair.url) as client, listening(pair.url) as tap:
        streams = [begin(client, number, 1800) for number in range(7000, 7012)]
        await begun(streams)
        ready = times_ready(pair, "schedule")
        for scheduler in processes_of(pair, "schedule"):
            scheduler.send_signal(signal.SIGKILL)
        await until(lambda: times_ready(pair, "schedule") >= ready + 2, "two schedulers that know of no grant")
        await asyncio.sleep(1)  # two heartbeats: a worker that they have never heard of cannot fall silent
        processes_of(pair, "inference")[0].send_signal(signal.SIGKILL)
        gap_s = await ended(streams)
        await tap.settled()
        assert [await tap.terminal(stream.told.id) for stream in streams] == ["length"] * 12
    assert gap_s < 10, "a third below the ack wait of 15 s"


async def test_preprocess_with_requests_in_hand(pair: Pipeline) -> None:
    """What the broker had given to it comes to another preprocess after the ack wait of REQUESTS, and ends once."""
    async with Headrace(pair.url) as client, listening(pair.url) as tap:
        victim = processes_of(pair, "preprocess")[0]
        with stopped(victim):  # it takes what it asked for, and goes no further with it
            streams = [begin(client, number, 20) for number in range(5000, 5060)]

            async def the_victim_alone_holds_requests() -> bool:
                waiting = sum(not stream.done.done() for stream in streams)
                return 0 < waiting < len(streams) and waiting == await tap.held(subjects.REQUESTS)

            await until(the_victim_alone_holds_requests, "requests in hand")
            victim.send_signal(signal.SIGKILL)
        await ended(streams)
        await tap.settled()
        assert [await tap.terminal(stream.told.id) for stream in streams] == ["length"] * 60


async def test_a_scheduler_with_held_and_granted_tickets(narrow: Pipeline) -> None:
    """Workers are full: what waited in the dead one's window is granted by the other, what ran goes on untouched."""
    async with Headrace(narrow.url) as client, listening(narrow.url) as tap:
        running = [begin(client, number, 1500) for number in range(8)]
        await begun(running)
        waiting = [begin(client, number, 50) for number in range(100, 130)]

        async def all_are_held() -> bool:
            return await tap.held(subjects.TICKETS) == len(running) + len(waiting)

        await until(all_are_held, "all tickets pulled")
        assert len(tap.grants) == 2, "both schedulers have granted"
        processes_of(narrow, "schedule")[0].send_signal(signal.SIGKILL)

        async def some_come_again() -> bool:
            return await tap.redelivered(subjects.TICKETS) > 0

        await until(some_come_again, "what the dead one held")
        gap_s = await ended(running)
        assert gap_s < TICKET_ACK_WAIT_S / 2
        assert all(tap.opens[f"default.{stream.told.id}"] == 1 for stream in running), "one attempt each"
        await ended(waiting)
        await tap.settled()
        streams = [*running, *waiting]
        assert [await tap.terminal(stream.told.id) for stream in streams] == ["length"] * len(streams)


async def test_a_worker_that_others_wait_for(narrow: Pipeline) -> None:
    """E5: more tickets than slots, and a worker dies: no more was with it than it has slots, and all of it ends."""
    async with Headrace(narrow.url) as client, listening(narrow.url) as tap:
        streams = [begin(client, number, 600) for number in range(200, 220)]
        await until(lambda: sum(bool(stream.told.ids) for stream in streams) == 8, "full workers")
        await until(lambda: tap.running == 8, "a heartbeat of each")
        assert all(len(status.held) == status.max_slots == 4 for status in tap.alive)
        processes_of(narrow, "inference")[0].send_signal(signal.SIGKILL)
        await ended(streams)
        await tap.settled()
        assert [await tap.terminal(stream.told.id) for stream in streams] == ["length"] * len(streams)
        assert 1 <= sum(tap.opens[f"default.{stream.told.id}"] > 1 for stream in streams) <= 4, "its four slots at most"
