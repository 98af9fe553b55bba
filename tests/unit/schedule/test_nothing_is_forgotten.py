"""Whatever happens in whatever order, every ticket that was pulled leaves the scheduler exactly once."""

import asyncio
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.connection import Unavailable
from stages.schedule.held import Phase
from tests.unit.schedule.bench import PARTITIONS, Bench
from tests.unit.schedule.stand_ins import MemoryWorkers, ticket

TICKETS = 12
WORKERS: list[str] = ["w1", "w2"]


class Chaos:
    """Drives one scheduler by chance: workers fill, fall silent, refuse; partitions refuse; owners answer or do not."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = Bench(MemoryWorkers(dict.fromkeys(WORKERS, 3)))
        self.pulled = 0

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice((self.pull, self.beat, self.trouble, self.cancel, self.answer, self.age))()
            await self.bench.tick()
            self.check_credits()

    def pull(self) -> None:
        if self.pulled < TICKETS:
            self.pulled += 1
            deadline_ms = self.random.choice((600, 10**9))
            deliveries = self.random.choice((1, 1, 2))
            self.bench.pull(ticket(f"r{self.pulled}", deadline_ms=deadline_ms), self.pulled, deliveries=deliveries)

    def beat(self) -> None:
        for worker in WORKERS:
            self.bench.workers.slots[worker] = self.random.randint(0, 3)
        self.bench.beat()

    def trouble(self) -> None:
        self.bench.workers.silent = {worker for worker in WORKERS if self.random.random() < 0.3}
        down = [number for number in range(PARTITIONS) if self.random.random() < 0.3]
        self.bench.journal.fail = {number: Unavailable("away") for number in down}

    def cancel(self) -> None:
        if self.pulled:
            self.bench.scheduler.cancel(f"t.r{self.random.randint(1, self.pulled)}")

    def answer(self) -> None:
        for held in self.bench.scheduler.window.in_phase(Phase.ASKED):
            if self.random.random() < 0.5:
                self.bench.answer(held.sequence, ended=self.random.random() < 0.2)

    def age(self) -> None:
        self.bench.later += self.random.choice((0.1, 0.7, 3.0))

    def check_credits(self) -> None:
        """Nothing is under way between two ticks: what a worker has free is what it said."""
        for worker in self.bench.scheduler.workers:
            assert worker.candidate(self.bench.now).slots == worker.credits.slots

    async def recover(self) -> None:
        """All is well again: whatever is held has to go now."""
        self.bench.workers.silent = set()
        self.bench.journal.fail = {}
        for _ in range(6):
            self.bench.workers.slots = dict.fromkeys(WORKERS, TICKETS)
            self.bench.beat()
            self.bench.later += 3
            await self.bench.tick()
            for held in self.bench.scheduler.window.in_phase(Phase.ASKED):
                self.bench.answer(held.sequence)
            await self.bench.tick()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 60))
def test_every_ticket_leaves_exactly_once(seed: int, steps: int) -> None:
    """Granted, ended or known to have ended; its slot of the work queue is freed once; no attempt is granted twice."""

    async def scenario() -> Chaos:
        chaos = Chaos(seed)
        await chaos.run(steps)
        await chaos.recover()
        return chaos

    chaos = asyncio.run(scenario())
    bench = chaos.bench
    assert len(bench.scheduler.window) == 0
    assert sorted(bench.queue.let_go_of) == list(range(1, chaos.pulled + 1))
    ended = [end.ack for end in bench.journal.ends]
    assert len(ended) == len(set(ended))
    taken = Counter((item.sequence, item.attempt) for item in bench.workers.taken)
    assert all(count == 1 for count in taken.values())
