"""Rounds of the autoscaler: what it does with what was decided, and when it decides nothing."""

import asyncio
from dataclasses import dataclass, field

import structlog

from stages.autoscaling.autoscaler import Autoscaler, Judgement
from stages.autoscaling.rules import Rules
from stages.autoscaling.targets.target import TargetError
from stages.autoscaling.view import line
from stages.observing.pipeline import Snapshot
from stages.replicas import ReplicaState
from tests.unit.stages.autoscaling.snapshots import backlog, snapshot, worker


@dataclass
class Recorded:
    """A target that does what it is told, once `free`; `fails` is what it says instead."""

    counts: dict[str, int]
    told: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    fails: str = ""
    free: asyncio.Event = field(default_factory=asyncio.Event)

    async def state(self) -> ReplicaState:
        return ReplicaState(dict(self.counts), dict(self.counts))

    async def set(self, group: str, count: int) -> None:
        self.told.append((group, count))
        if self.fails:
            raise TargetError(self.fails)
        await self.free.wait()
        self.counts[group] = count


class Bench:
    """An autoscaler of `counts`, each of at most four, on a clock of the test's own."""

    def __init__(self, served: str = "m", *, carry_out: bool = True, every_s: float = 2.0, **counts: int) -> None:
        self.now = 1000.0
        self.target = Recorded({name.replace("__", ":"): count for name, count in counts.items()})
        self.target.free.set()
        rules = {group: Rules(0, 4) for group in self.target.counts}

        async def slugs() -> set[str]:
            return set(served.split())

        self.autoscaler = Autoscaler(
            self.target, rules, slugs, carry_out=carry_out, every_s=every_s, clock=lambda: self.now
        )

    async def round(self, seen: Snapshot, passed_s: float = 2.0) -> Judgement:
        self.now += passed_s
        judged = (await self.autoscaler.round(seen))[0]
        for _ in range(3):  # what was decided begins
            await asyncio.sleep(0)
        return judged


BUSY = snapshot(backlogs=[backlog(tickets=40, seconds=30.0)], workers=[worker(running=10)])
BLIND = snapshot(backlogs=[], workers=[worker(running=10)])


async def test_what_is_decided_is_done() -> None:
    """More work than one worker can do: there are more, and the gauge says how many."""
    bench = Bench(inference=1)
    judged = await bench.round(BUSY)
    assert judged.wanted > 1
    assert bench.target.told == [("inference", judged.wanted)]
    assert bench.autoscaler.wanted == {"inference": judged.wanted}


async def test_a_dry_run_only_tells() -> None:
    """The same decision, and what it saw; nobody is told to do it."""
    bench = Bench(carry_out=False, inference=1)
    judged = await bench.round(BUSY)
    assert judged.wanted > 1
    assert line(judged).startswith(f"inference     1 → {judged.wanted}  (waiting 40, 30.0 s; busy 100%; 1 ready): ")
    assert bench.target.told == []


async def test_nothing_is_decided_on_what_nobody_knows() -> None:
    """No scheduler is heard: that is no idle pipeline, however long it lasts."""
    bench = Bench(inference=3)
    judged = [await bench.round(BLIND) for _ in range(1000)]
    assert {(one.wanted, one.seen) for one in judged} == {(3, None)}
    assert judged[-1].why == "nobody knows what waits: no scheduler was heard for 2 s"
    assert bench.target.told == []


async def test_a_model_without_a_card_gets_one_worker() -> None:
    """Requests for it would be refused until one has told what the model is: then they can wait."""
    bench = Bench("", inference=0)
    judged = await bench.round(snapshot())
    assert (judged.wanted, bench.target.told) == (1, [("inference", 1)])
    assert "card" in judged.why
    for _ in range(1000):
        assert (await bench.round(snapshot())).wanted == 1


async def test_of_several_models_each_needs_its_own_card() -> None:
    """Another's does not let its requests wait."""
    bench = Bench("other", inference__m=0)
    assert (await bench.round(snapshot())).wanted == 1
    bench = Bench("other m", inference__m=0)
    assert (await bench.round(snapshot())).wanted == 0


async def test_a_change_is_let_come_to_its_end() -> None:
    """Containers take their time to stop: until then nothing else is asked of the same group."""
    bench = Bench(inference=1)
    bench.target.free.clear()
    first = await bench.round(BUSY)
    judged = await bench.round(BUSY)
    assert (judged.wanted, judged.why) == (1, "the last change is not through yet")
    assert len(bench.target.told) == 1
    bench.target.free.set()
    await bench.autoscaler.finish(5.0)
    assert bench.target.counts == {"inference": first.wanted}


async def test_what_could_not_be_done_is_tried_again() -> None:
    """The next round sees that there are as few as before."""
    bench = Bench(inference=1)
    bench.target.fails = "no such service"
    for _ in range(100):
        await bench.round(BUSY)
    assert len(bench.target.told) > 1
    assert set(bench.target.counts.values()) == {1}


async def test_what_was_out_of_sight_is_let_settle() -> None:
    """After a loss of the broker, or a pause of this process, workers may not have been heard of again yet."""
    bench = Bench(inference=1)
    bench.autoscaler.disturbed()
    assert (await bench.round(BUSY)).why == "all was out of sight a moment ago"
    assert (await bench.round(BUSY)).wanted > 1
    bench = Bench(inference=1)
    assert (await bench.round(BUSY, passed_s=60)).seen is None
    assert bench.target.told == []


async def test_rounds_far_apart_are_no_pause() -> None:
    """With `--every 60` it decides each time."""
    bench = Bench(every_s=60, inference=1)
    assert (await bench.round(BUSY, passed_s=60)).wanted > 1


async def test_inference_is_each_model_by_itself_where_they_have_processes_of_their_own() -> None:
    """With the same limits for each: one has work, the other has none."""
    bench = Bench("m other", inference=1)
    bench.target.counts = {"inference:m": 1, "inference:other": 0}
    await bench.round(snapshot(backlogs=[*BUSY.backlogs, backlog("other")], workers=BUSY.workers))
    assert [group for group, _ in bench.target.told] == ["inference:m"]
    assert bench.autoscaler.wanted["inference:other"] == 0


async def test_a_group_that_is_not_there_is_said_once() -> None:
    """The others are scaled all the same."""
    bench = Bench(postprocess=1, inference=1)
    del bench.target.counts["postprocess"]
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            await bench.round(BUSY)
    said = [line for line in logs if line["event"] == "autoscale.no_such_group"]
    assert [(line["group"], line["there"]) for line in said] == [("postprocess", ["inference"])]
    assert bench.target.told
