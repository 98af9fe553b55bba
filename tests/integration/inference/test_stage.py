"""An inference worker with the simulated engine at a real broker, from its first heartbeat to its last entry."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import ClassVar

import pytest
import pytest_asyncio
from prometheus_client import generate_latest

from broker.cancels import put_cancel
from broker.connection import Connection, Inbound
from broker.registry import Registry
from broker.server import EmbeddedServer
from broker.topology import Topology
from schemas.control import Cancel
from stages.inference import stage
from stages.inference.engine import EngineDead, StepOutput
from stages.inference.parking import PARK_S
from stages.inference.simulated import SimulatedEngine
from stages.inference.simulated_model import simulated_model
from stages.inference.stage import EngineStalled
from stages.lifecycle import StageContext
from tests.integration.inference.serving import MODEL, Pipeline, Run, Serving, serving, simulated


@pytest_asyncio.fixture
async def pipeline(connection: Connection, topology: Topology) -> AsyncIterator[Pipeline]:
    running = Pipeline(connection, topology)
    await running.start()
    yield running
    await running.stop()


def worker(**settings: object) -> Run:
    return lambda context: stage.run(context, simulated(**settings))


def expected(prompt: list[int], count: int, ids: list[int] | None = None) -> list[int]:
    """What the simulated model says, after `ids`."""
    so_far = list(ids or [])
    while len(so_far) < count:
        so_far.append(simulated_model().next_id(prompt, so_far))
    return so_far


async def test_serves_grants(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """Grants over all partitions are taken and computed; the journals hold every id once; credits come back."""
    async with serving(broker_url, topology, worker()) as running:
        await pipeline.until(lambda: bool(pipeline.heartbeats))
        items = [pipeline.item(f"r{number}", prompt=[number, 2, 3]) for number in range(12)]
        reply = await pipeline.grant(*items)
        assert reply.taken == [one.sequence for one in items]
        assert reply.credits.slots == 64 - 12
        await pipeline.until(lambda: len(pipeline.finishes) == 12)
        for number in range(12):
            assert pipeline.ids[f"t.r{number}"] == expected([number, 2, 3], 8)
        assert set(pipeline.finishes.values()) == {"length"}
        await pipeline.until(lambda: pipeline.heartbeats[-1].credits.slots == 64)
        assert await running.stop() is None
    assert pipeline.heartbeats[-1].state == "draining"
    assert pipeline.heartbeats[-1].held == []


async def test_one_message_a_step_and_partition(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """Thirty answers of twenty tokens make far fewer messages than tokens: a step's ids of a partition go as one."""
    async with serving(broker_url, topology, worker(simulated_step_ms=5)):
        items = [pipeline.item(f"r{number}", max_tokens=20) for number in range(30)]
        await pipeline.grant(*items)
        await pipeline.until(lambda: len(pipeline.finishes) == 30)
    assert pipeline.messages <= 21 * topology.partitions


async def test_publishes_the_model(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """Before the first heartbeat the card and the files of the tokenizer are there for CPU stages."""
    async with serving(broker_url, topology, worker(aliases=("gpt-4", "x"))):
        await pipeline.until(lambda: bool(pipeline.heartbeats))
        registry = Registry(pipeline.connection)
        card = (await registry.models())[0]
        assert (card.slug, card.name, card.engine, card.aliases) == (MODEL, "simulated", "simulated", ["gpt-4", "x"])
        assert (card.context_length, card.vocab_size) == (8192, 500)
        assert card.eos_ids == [simulated_model().eos]
        files = await registry.files(card)
        assert set(files) == {
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "generation_config.json",
        }


async def test_resumes_where_another_worker_ended(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """Ids of an earlier attempt are gone on with, at their offset."""
    whole = expected([5, 6, 7], 20)
    async with serving(broker_url, topology, worker()):
        await pipeline.grant(pipeline.item("r", max_tokens=20, ids=whole[:12]))
        await pipeline.until(lambda: "t.r" in pipeline.finishes)
    assert pipeline.ids["t.r"] == whole[12:]


def running_gauge(served: Serving) -> str:
    """Its line in `/metrics`."""
    text = generate_latest(served.context.telemetry.registry).decode()
    return next(line for line in text.splitlines() if line.startswith("headrace_engine_running{"))


async def test_cancel_and_drop_free_the_slot(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """A cancelled and a dropped request stop at once, without an entry; schedulers hear of it out of turn."""
    async with serving(broker_url, topology, worker(simulated_step_ms=5, heartbeat_s=5)) as served:
        items = [pipeline.item(name, max_tokens=5000) for name in ("cancelled", "dropped")]
        assert (await pipeline.grant(*items)).credits.slots == 62
        await pipeline.until(lambda: len(pipeline.ids) == 2)
        await put_cancel(pipeline.connection, "t.cancelled", Cancel("s"))
        await pipeline.until(lambda: pipeline.heartbeats[-1].credits.slots == 63, seconds=1)
        await pipeline.drop("dropped", attempt=1)
        await pipeline.until(lambda: pipeline.heartbeats[-1].credits.slots == 64, seconds=1)
        assert " 0.0" in running_gauge(served), "nobody scales down what seems to run"
        assert (await pipeline.grant(pipeline.item("cancelled2"))).taken
    assert not any(key in pipeline.finishes for key in ("t.cancelled", "t.dropped"))
    assert (pipeline.ends, pipeline.released) == ([], [])


async def test_refuses_what_was_cancelled_before(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """A cancel that was there before the worker started is known to it."""
    await put_cancel(pipeline.connection, "t.r", Cancel("s"))
    async with serving(broker_url, topology, worker()):
        assert (await pipeline.grant(pipeline.item("r"))).taken == []


async def test_keeps_tickets_alive(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """While it holds a ticket it sends `+WPI` on its ack subject several times within the ack wait, then no more."""
    beats: list[bytes] = []

    async def on_ack(message: Inbound) -> None:
        beats.append(message.data)

    async with serving(broker_url, topology, worker(simulated_step_ms=20)):
        item = pipeline.item("r", max_tokens=60)
        await pipeline.connection.subscribe(item.ack, on_ack)
        await pipeline.connection.prove_subscriptions()
        await pipeline.grant(item)
        await pipeline.until(lambda: "t.r" in pipeline.finishes)
        assert len(beats) >= 3
        assert set(beats) == {b"+WPI"}
        await asyncio.sleep(0.1)
        count = len(beats)
        await asyncio.sleep(topology.ticket_ack_wait_s / 2)
        assert len(beats) == count


async def test_drain_finishes_what_it_can(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """Soft stop: no new grants, what ends within the grace time is finished, the exit is clean (case E4)."""
    async with serving(broker_url, topology, worker(simulated_step_ms=10)) as running:
        await pipeline.grant(pipeline.item("r", max_tokens=50))
        await pipeline.until(lambda: "t.r" in pipeline.ids)
        running.context.stopping.set()
        await pipeline.until(lambda: pipeline.heartbeats[-1].state == "draining")
        late = await pipeline.grant(pipeline.item("late"))
        assert (late.taken, late.credits.slots) == ([], 0)
        assert await running.stop() is None
    await pipeline.until(lambda: "t.r" in pipeline.finishes)
    assert pipeline.ids["t.r"] == expected([5, 6, 7], 50)
    assert pipeline.released == []


async def test_drain_hands_back_the_rest(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """What does not end within the grace time is released after its last ids, and goes on elsewhere (case E4)."""
    async with serving(broker_url, topology, worker(simulated_step_ms=10), grace_s=1) as running:
        await pipeline.grant(pipeline.item("r", max_tokens=5000))
        await pipeline.until(lambda: "t.r" in pipeline.ids)
        assert await running.stop(3) is None
    await pipeline.until(lambda: bool(pipeline.released))
    assert [(one.key, one.attempt) for one in pipeline.released] == [("t.r", 1)]
    so_far = pipeline.ids["t.r"]
    assert so_far == expected([5, 6, 7], len(so_far))
    async with serving(broker_url, topology, worker(), instance="w2"):
        count = len(so_far)
        item = pipeline.item("again", max_tokens=count + 20, ids=so_far)
        await pipeline.grant(item, worker="w2")
        await pipeline.until(lambda: "t.again" in pipeline.finishes)
    assert pipeline.ids["t.again"] == expected([5, 6, 7], count + 20)[count:]


async def test_broker_restart(broker_url: str, server: EmbeddedServer, topology: Topology, pipeline: Pipeline) -> None:
    """The broker is killed in mid-answer and comes back within the ack wait: every id is in the journal, once."""
    patient = replace(topology, ticket_ack_wait_s=15.0)
    async with serving(broker_url, patient, worker(simulated_step_ms=5)) as running:
        items = [pipeline.item(f"r{number}", max_tokens=300) for number in range(6)]
        await pipeline.grant(*items)
        await pipeline.until(lambda: len(pipeline.ids) == 6)
        await server.kill()
        await server.restart()
        await pipeline.until(lambda: len(pipeline.finishes) == 6, seconds=20)
        for number in range(6):
            assert pipeline.ids[f"t.r{number}"] == expected([5, 6, 7], 300)
        assert await running.stop() is None


async def test_forgets_after_it_stood_still(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """A process that stood still for the ack wait holds nothing any more: others have it, and it says nothing."""
    async with serving(broker_url, topology, worker(simulated_step_ms=10)):
        await pipeline.grant(pipeline.item("r", max_tokens=5000))
        await pipeline.until(lambda: "t.r" in pipeline.ids and bool(pipeline.heartbeats[-1].held))
        time.sleep(topology.ticket_ack_wait_s)  # noqa: ASYNC251 — the loop has to stand still
        await pipeline.until(lambda: pipeline.heartbeats[-1].held == [])
        assert pipeline.heartbeats[-1].credits.slots == 64
        assert (await pipeline.grant(pipeline.item("next"))).taken
        await pipeline.until(lambda: "t.next" in pipeline.finishes)
    assert (pipeline.released, pipeline.ends) == ([], [])


async def test_forgets_after_it_was_cut_off(
    broker_url: str, server: EmbeddedServer, topology: Topology, pipeline: Pipeline
) -> None:
    """Cut off from the broker for the ack wait, it forgets what it held and serves anew."""
    async with serving(broker_url, topology, worker(simulated_step_ms=10)):
        await pipeline.grant(pipeline.item("r", max_tokens=5000))
        await pipeline.until(lambda: "t.r" in pipeline.ids and bool(pipeline.heartbeats[-1].held))
        await server.kill()
        await asyncio.sleep(topology.ticket_ack_wait_s)
        await server.restart()
        await pipeline.until(lambda: pipeline.heartbeats[-1].held == [])
        await pipeline.grant(pipeline.item("next"))
        await pipeline.until(lambda: "t.next" in pipeline.finishes)
    assert (pipeline.released, pipeline.ends) == ([], [])


class Faulty(SimulatedEngine):
    """Hangs or dies after some steps, or ends as iterators and tasks do."""

    fault = "hang"
    faults: ClassVar[dict[str, BaseException]] = {
        "die": EngineDead("out of memory"),
        "end": StopAsyncIteration(),
        "vanish": asyncio.CancelledError(),
    }

    async def next_step(self) -> StepOutput:
        step = await super().next_step()
        if any(advance.ids and advance.id.startswith("t.bad/") for advance in step.advances):
            if self.fault == "hang":
                await asyncio.sleep(3600)
            raise self.faults[self.fault]
        return step


@pytest.fixture(
    params=[("hang", EngineStalled), ("die", EngineDead), ("end", StopAsyncIteration), ("vanish", EngineDead)],
    ids=["hangs", "dies", "ends", "vanishes"],
)
def faulty(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, type[Exception]]:
    """A worker whose engine has a fault as soon as a request named `bad` gets a token, and what that ends in."""
    fault, error = request.param
    monkeypatch.setattr("stages.inference.simulated.SimulatedEngine", Faulty)
    monkeypatch.setattr(Faulty, "fault", fault)
    return worker(step_limit_s=2 * PARK_S, heartbeat_s=0.1), error


async def test_an_engine_that_ends_hands_back(
    broker_url: str, topology: Topology, pipeline: Pipeline, faulty: tuple[Run, type[Exception]]
) -> None:
    """Hung or dead: the state says so, everything is released, the stage ends with an error (cases E1, E2).

    An engine that just says nothing more, as at a shutdown, is a dead one: no answer counts as finished (case E10).

    What the engine ran died with it, what was parked did not, for however long it had been parked.
    """
    run, error = faulty
    async with serving(broker_url, topology, run) as running:
        await pipeline.grant(pipeline.item("long", max_tokens=8000))
        await pipeline.until(lambda: "t.long" in pipeline.ids)
        await pipeline.grant(pipeline.item("bad", max_tokens=100), pipeline.item("parked", max_tokens=100, deaths=2))
        await asyncio.wait({running.task}, timeout=30)
        assert isinstance(running.task.exception(), error)
    await pipeline.until(lambda: len(pipeline.released) == 3)
    assert sorted((one.key, one.died, one.worker) for one in pipeline.released) == [
        ("t.bad", True, "w1"),
        ("t.long", True, "w1"),
        ("t.parked", False, "w1"),
    ]
    assert pipeline.heartbeats[-1].state == "stalled"
    assert pipeline.heartbeats[-1].credits.slots == 0
    assert pipeline.finishes == {}


async def test_what_a_dead_engine_had_does_not_wait_for_its_end(
    broker_url: str, topology: Topology, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that does not even close: everything it had is with others meanwhile."""
    closed = asyncio.Event()

    class Clinging(Faulty):
        fault = "die"

        async def close(self) -> None:
            await closed.wait()

    monkeypatch.setattr("stages.inference.simulated.SimulatedEngine", Clinging)
    async with serving(broker_url, topology, worker()) as running:
        await pipeline.grant(pipeline.item("bad", max_tokens=100))
        await pipeline.until(lambda: bool(pipeline.released), 30)
        assert not running.task.done()
        closed.set()
        await asyncio.wait({running.task}, timeout=30)
        assert isinstance(running.task.exception(), EngineDead)


async def test_runs_alone_when_its_neighbours_are_gone(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """Parked while the engine has others, listed as such, not before; its heartbeat says it begins, then it runs.

    A neighbour with much to go is handed back after a second: no death, and all that it generated is in the journal.
    """
    async with serving(broker_url, topology, worker(simulated_step_ms=5)):
        await pipeline.grant(pipeline.item("neighbour", max_tokens=8000))
        await pipeline.until(lambda: "t.neighbour" in pipeline.ids)
        item = pipeline.item("alone", max_tokens=300, deaths=2)
        heard = len(pipeline.heartbeats)
        reply = await pipeline.grant(item)
        assert (reply.taken, reply.credits.slots) == ([item.sequence], 0)
        await pipeline.until(lambda: any(item.sequence in one.parked for one in pipeline.heartbeats[heard:]))
        assert (await pipeline.grant(pipeline.item("late"))).taken == []
        await pipeline.until(lambda: "t.alone" in pipeline.ids, 30)
        assert [(one.key, one.died) for one in pipeline.released] == [("t.neighbour", False)]
        last = pipeline.heartbeats[-1]
        assert (item.sequence in last.held, last.parked) == (True, [])
        await pipeline.until(lambda: pipeline.heartbeats[-1].credits.slots == 63, 30)
        assert (await pipeline.grant(pipeline.item("late"))).taken
        await pipeline.until(lambda: len(pipeline.finishes) == 2, 30)
    assert pipeline.ids["t.alone"] == expected([5, 6, 7], 300)
    assert pipeline.ids["t.neighbour"] == expected([5, 6, 7], len(pipeline.ids["t.neighbour"]))


async def test_drain_hands_back_what_is_parked(broker_url: str, topology: Topology, pipeline: Pipeline) -> None:
    """At once, while the neighbour still finishes: it may run elsewhere now."""
    async with serving(broker_url, topology, worker(simulated_step_ms=5)) as running:
        await pipeline.grant(pipeline.item("neighbour", max_tokens=400))
        await pipeline.until(lambda: "t.neighbour" in pipeline.ids)
        await pipeline.grant(pipeline.item("alone", max_tokens=10, deaths=2))
        running.context.stopping.set()
        await pipeline.until(lambda: bool(pipeline.released), 30)
        assert [(one.key, one.died) for one in pipeline.released] == [("t.alone", False)]
        assert pipeline.finishes == {}
        assert await running.stop() is None
    await pipeline.until(lambda: "t.neighbour" in pipeline.finishes, 30)


async def test_stop_while_the_model_loads(broker_url: str, topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that comes before the engine is ready ends the stage at once, cleanly."""

    class Slow(SimulatedEngine):
        async def start(self):
            await asyncio.sleep(60)
            return await super().start()

    monkeypatch.setattr("stages.inference.simulated.SimulatedEngine", Slow)

    async def run(context: StageContext) -> None:
        asyncio.get_running_loop().call_later(0.1, context.stopping.set)
        await stage.run(context, simulated())

    async with serving(broker_url, topology, run) as running:
        assert await running.stop(2) is None
