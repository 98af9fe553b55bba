"""Whatever happens in whatever order, no ticket is lost or doubled, and credits and deaths are counted right."""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from broker.connection import Unavailable
from schemas.poison import ALONE_FROM
from stages.schedule.held import Phase
from tests.unit.schedule.bench import PARTITIONS, Bench
from tests.unit.schedule.fleet import Fleet, Mood
from tests.unit.schedule.stand_ins import ticket

BEAT_S = 0.5
WORKERS = ["w1", "w2", "w3"]

some_workers = st.sets(st.sampled_from(WORKERS))
some = st.integers(0, 2**16 - 1)
"""Which tickets something happens to: what is drawn may not depend on what has happened."""


def among(chosen: int, sequence: int) -> bool:
    return bool(chosen >> sequence % 16 & 1)


@dataclass
class StillBench(Bench):
    """Time passes by `later` alone."""

    began: float = field(default_factory=time.monotonic)

    @property
    def now(self) -> float:
        return self.began + self.later


class History(RuleBasedStateMachine):
    """`pulls` counts deliveries of each ticket; `orphans` were taken back, and wait to be delivered again."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.fleet = Fleet(WORKERS)
        self.bench = StillBench(self.fleet)
        self.pulls: Counter[int] = Counter()
        self.requests: dict[int, tuple[str, int, int]] = {}
        self.orphans: set[int] = set()
        self.accused: dict[str, set[int]] = {}
        self.beat(set(WORKERS))

    def run_in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        self.runner.run(work)

    # What happens

    @rule(
        tenant=st.sampled_from("abc"),
        priority=st.integers(0, 2),
        prompts=st.lists(st.integers(1, 100), min_size=1, max_size=6),
        hurried=st.booleans(),
    )
    def tickets_come(self, tenant: str, priority: int, prompts: list[int], hurried: bool) -> None:
        async def pull() -> None:
            for prompt in prompts:
                sequence = len(self.pulls) + 1
                self.requests[sequence] = (tenant, priority, prompt)
                self.pull(sequence, deadline_ms=3000 if hurried else 10**9)
            await self.bench.tick()

        self.run_in_loop(pull())

    @rule(chosen=some)
    def tickets_come_back(self, chosen: int) -> None:
        """Those of a dead worker, once their owner has let them go."""
        self.come_again({sequence for sequence in self.orphans if among(chosen, sequence)}, deliveries=2)

    @rule(chosen=some, deliveries=st.integers(1, 2))
    def running_tickets_are_delivered_again(self, chosen: int, deliveries: int) -> None:
        """Their worker did not keep them alive in time, or the broker counts anew."""
        running = {one for worker in self.fleet.workers.values() for one in worker.held if among(chosen, one)}
        held = {held.sequence for held in self.bench.scheduler.window}
        self.come_again(running - held, deliveries=deliveries)

    @rule(who=some_workers, prefill=st.sampled_from([0, 50, 10_000]))
    def workers_beat(self, who: set[str], prefill: int) -> None:
        async def beat() -> None:
            self.bench.later += BEAT_S
            self.beat(who, prefill)
            await self.bench.tick()

        self.run_in_loop(beat())

    @rule(name=st.sampled_from(WORKERS), kv_tokens=st.integers(0, 500), chosen=some)
    def a_worker_finishes_some(self, name: str, kv_tokens: int, chosen: int) -> None:
        worker = self.fleet.workers[name]
        worker.held = {one for one in worker.held if not among(chosen, one)}
        worker.kv_tokens = kv_tokens

    @rule(name=st.sampled_from(WORKERS), mood=st.sampled_from(["well", "refuses", "mute", "deaf"]))
    def a_worker_changes(self, name: str, mood: Mood) -> None:
        self.fleet.workers[name].mood = mood

    @rule(down=st.sets(st.integers(0, PARTITIONS - 1)))
    def partitions_fail(self, down: set[int]) -> None:
        self.bench.journal.fail = {number: Unavailable("away") for number in down}

    @rule(chosen=some, ended=some, alone=some)
    def owners_answer(self, chosen: int, ended: int, alone: int) -> None:
        async def answer() -> None:
            for held in self.bench.scheduler.window.in_phase(Phase.ASKED):
                if among(chosen, held.sequence):
                    deaths = ALONE_FROM if among(alone, held.sequence) else 0
                    self.answer(held.sequence, ended=among(ended, held.sequence), deaths=deaths)
            await self.bench.tick()

        self.run_in_loop(answer())

    @rule(sequence=st.integers(1, 50))
    def a_request_is_cancelled(self, sequence: int) -> None:
        async def cancel() -> None:
            if sequence in self.requests:
                self.bench.scheduler.cancel(f"{self.requests[sequence][0]}.r{sequence}")
            await self.bench.tick()

        self.run_in_loop(cancel())

    @rule(who=some_workers, dead=st.booleans())
    def workers_fall_silent(self, who: set[str], dead: bool) -> None:
        """Exactly what they had is taken back; what they had not finished has died with them."""

        async def wait() -> None:
            self.bench.later += 2.5
            self.beat(set(WORKERS) - who)
            silences = self.bench.scheduler.take_back_silent(self.bench.now)
            assert {silence.worker for silence in silences} <= who
            for silence in silences:
                worker = self.fleet.workers[silence.worker]
                listed = {one.granted.sequence: one.released.died for one in silence.tickets}
                assert listed == {sequence: missing == 0 for sequence, missing in worker.known.items()}
                self.orphans |= set(listed)
                if died := {sequence for sequence, dead in listed.items() if dead}:
                    self.accused[silence.worker] = died
                worker.known = {}
                worker.held = set[int]() if dead else worker.held
            assert all(not self.fleet.workers[name].known for name in who)
            await self.bench.tick()

        self.run_in_loop(wait())

    # What always holds

    @invariant()
    def every_ticket_is_held_or_was_let_go(self) -> None:
        """As often as it was pulled."""
        let_go = Counter(self.bench.queue.let_go_of)
        held = Counter(held.sequence for held in self.bench.scheduler.window)
        assert let_go + held == self.pulls

    @invariant()
    def no_attempt_runs_twice(self) -> None:
        assert all(count == 1 for count in self.fleet.takes.values())

    @invariant()
    def credits_come_back(self) -> None:
        """Between two ticks nothing is under way: a worker has what it told last."""
        for worker in self.bench.scheduler.workers:
            told = self.fleet.workers[worker.id].told
            assert (worker.credits, worker._granting) == (told, 0)
            assert (worker._placed_slots, worker._placed_kv, worker._placed_prefill, worker._placed_alone) == (0,) * 4

    def teardown(self) -> None:
        """All is well again: whatever is held has to go now."""
        self.bench.journal.fail = {}
        self.run_in_loop(self.recover())
        self.every_ticket_is_held_or_was_let_go()
        assert len(self.bench.scheduler.window) == 0
        self.runner.close()

    async def recover(self) -> None:
        for _ in range(8 + len(self.pulls)):  # what has to run alone goes one by one
            for worker in self.fleet.workers.values():
                worker.mood, worker.held, worker.kv_tokens = "well", set(), 500
            self.bench.later += 3
            self.beat(set(WORKERS))
            await self.bench.tick()
            for held in self.bench.scheduler.window.in_phase(Phase.ASKED):
                self.answer(held.sequence)
            await self.bench.tick()

    # How

    def come_again(self, sequences: set[int], deliveries: int) -> None:
        async def pull() -> None:
            for sequence in sorted(sequences):
                self.pull(sequence, deliveries=deliveries)
            await self.bench.tick()

        self.run_in_loop(pull())

    def pull(self, sequence: int, *, deliveries: int = 1, deadline_ms: int = 10**9) -> None:
        tenant, priority, prompt = self.requests[sequence]
        one = ticket(f"r{sequence}", tenant=tenant, prompt=prompt, priority=priority, deadline_ms=deadline_ms)
        self.orphans.discard(sequence)
        self.fleet.void(sequence)
        self.pulls[sequence] += 1
        self.bench.pull(one, sequence, deliveries=deliveries)

    def beat(self, who: set[str], prefill: int = 0) -> None:
        for name in sorted(who):
            status = self.fleet.workers[name].status(name, prefill)
            acquitted = {granted.sequence for granted in self.bench.scheduler.acquitted(status)}
            assert acquitted == self.accused.pop(name, set())
            self.bench.scheduler.heard(status, self.bench.now)

    def answer(self, sequence: int, *, ended: bool = False, deaths: int = 0) -> None:
        self.fleet.drop(sequence)
        self.bench.answer(sequence, ended=ended, deaths=deaths)


def test_any_history() -> None:
    """Pulls, heartbeats, refusals, lost replies, deaths, cancels, full partitions: what `History` says always holds."""
    run_state_machine_as_test(History, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))
