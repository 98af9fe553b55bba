"""Workers and one scheduler in virtual time: what arrives waits, ticks place it, engines run it, news travel late."""

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from time import perf_counter

from load.fleet.engine import Engine, Job, Shape
from stages.schedule.expected_blocks import ExpectedBlocks
from stages.schedule.fairness import Tenants
from stages.schedule.lengths import Lengths
from stages.schedule.policy import Candidate, Choice, Matches, Plan, Policy, State, Waiting
from stages.schedule.prefixes import Prefixes


@dataclass(frozen=True)
class Delays:
    """Seconds: between ticks; until a grant is at its worker; until the scheduler hears what is free; of KV events."""

    tick_s: float = 0.001
    grant_s: float = 0.002
    heartbeat_s: float = 0.02
    events_s: float = 0.005


AT_ONCE = Delays(0.001, 0.0, 0.0, 0.0)
"""What a scheduler would do that knows everything at once."""

WINDOW = 1024
OUTPUT_RESERVE = 64
LOOK_AGAIN_S = 0.01


class _Worker:
    """One engine, and what the scheduler knows of it."""

    def __init__(self, name: str, shape: Shape) -> None:
        self.name = name
        self.shape = shape
        self.engine = Engine(shape)
        self.version = 0
        self.on_its_way = 0
        self.kv_on_its_way = 0
        self.tokens_on_its_way = 0
        self.told = False
        self.seen = self.look()
        self.seen_at = 0.0

    def now(self, now: float) -> Candidate:
        """As the scheduler sees it, which knows the worker's pace."""
        passed, seen, shape = now - self.seen_at, self.seen, self.shape
        step_s = shape.base_s + shape.decode_s * seen.running + shape.prefill_s * shape.step_tokens
        left = max(int(seen.prefill_tokens - passed / step_s * shape.step_tokens), self.tokens_on_its_way)
        return replace(seen, prefill_tokens=left, free_in_s=max(seen.free_in_s - passed, 0.0))

    def expects(self, kv_tokens: int, prefill_tokens: int) -> None:
        """A grant is on its way."""
        self.on_its_way += 1
        self.kv_on_its_way += kv_tokens
        self.tokens_on_its_way += prefill_tokens
        seen = self.seen
        self.seen = replace(
            seen,
            slots=max(seen.slots - 1, 0),
            kv_tokens=max(seen.kv_tokens - kv_tokens, 0),
            running=seen.running + 1,
            prefill_tokens=seen.prefill_tokens + prefill_tokens,
        )

    def has(self, kv_tokens: int, prefill_tokens: int) -> None:
        """It has arrived."""
        self.on_its_way -= 1
        self.kv_on_its_way -= kv_tokens
        self.tokens_on_its_way -= prefill_tokens

    def look(self) -> Candidate:
        engine, shape = self.engine, self.shape
        return Candidate(
            worker=self.name,
            slots=max(shape.slots - engine.running - self.on_its_way, 0),
            kv_tokens=max(engine.kv_free - self.kv_on_its_way, 0),
            kv_capacity=shape.kv_tokens,
            max_slots=shape.slots,
            running=engine.running + self.on_its_way,
            step_tokens=shape.step_tokens,
            prefill_tokens=engine.prefill_tokens + self.tokens_on_its_way,
            base_s=shape.base_s,
            decode_s=shape.decode_s,
            prefill_s=shape.prefill_s,
            free_in_s=engine.next_end_s(),
        )


class Fleet:
    """Runs one policy. `exact`: the scheduler sees engines and caches as they are."""

    def __init__(
        self,
        policy: Policy,
        workers: int,
        shape: Shape,
        delays: Delays | None = None,
        *,
        room: int = 0,
    ) -> None:
        self._policy = policy
        self._delays = delays or Delays()
        self._shape = shape
        self._workers = {f"w{number}": _Worker(f"w{number}", shape) for number in range(workers)}
        self._prefixes = Prefixes(shape.kv_tokens // shape.block_tokens)
        self._expected = ExpectedBlocks()
        self._tenants = Tenants()
        self._lengths = Lengths()
        self._waiting: dict[int, tuple[Job, Waiting]] = {}
        self._backlog: list[Job] = []
        self._backlog_from = 0
        self._room = room
        self._queued: Counter[str] = Counter()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._next_tick = inf
        self._last_tick = -inf
        self.done: list[Job] = []
        self.refused = 0
        self.ticks = 0
        self.looked_at = 0
        self.planning_s = 0.0

    @property
    def busy_s(self) -> float:
        """Of all GPUs together."""
        return sum(worker.engine.busy_s for worker in self._workers.values())

    def run(self, jobs: Iterable[Job], until: float = inf) -> float:
        """Everything that arrives, until all is answered or time is over. Returns the virtual time then."""
        for job in jobs:
            self._at(job.at, lambda now, job=job: self._arrived(job, now))
        now = 0.0
        while self._events and now < until:
            now, _, action = heapq.heappop(self._events)
            action(now)
        return now

    def _at(self, at: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at, next(self._order), action))

    def _arrived(self, job: Job, now: float) -> None:
        if self._room and self._queued[job.tenant] >= self._room:
            self.refused += 1
            return
        self._queued[job.tenant] += 1
        self._lengths.came(job.prompt)
        self._backlog.append(job)
        self._wake(now)

    def _pull(self) -> None:
        while len(self._waiting) < WINDOW and self._backlog_from < len(self._backlog):
            job = self._backlog[self._backlog_from]
            self._backlog_from += 1
            reserve = min(OUTPUT_RESERVE, job.output)
            self._waiting[job.number] = (
                job,
                Waiting(
                    sequence=job.number,
                    tenant=job.tenant,
                    priority=job.priority,
                    waiting_since=job.at,
                    deadline_at=job.at + 600.0,
                    prompt_tokens=job.prompt,
                    kv_tokens=job.prompt + reserve,
                    block_hashes=job.packed,
                ),
            )
        if self._backlog_from > 4096:
            del self._backlog[: self._backlog_from]
            self._backlog_from = 0

    def _wake(self, now: float) -> None:
        if self._next_tick == inf:
            self._next_tick = max(now, self._last_tick + self._delays.tick_s)
            self._at(self._next_tick, self._tick)

    def _tick(self, now: float) -> None:
        self._next_tick, self._last_tick = inf, now
        self._pull()
        if not self._waiting:
            return
        self.ticks += 1
        for name, blocks in self._expected.given_up(now):
            self._prefixes.removed(name, blocks)
        candidates = [worker.now(now) for worker in self._workers.values()]
        if not any(one.slots for one in candidates):
            return
        waiting = [ticket for _, ticket in self._waiting.values()]
        levels = self._tenants.levels((ticket.tenant for ticket in waiting), now)
        size, long_tokens = self._shape.block_tokens, self._lengths.long_tokens(self._shape.step_tokens)
        state = State(
            now, waiting, candidates, levels, {}, self._matches, size, long_tokens, self._tenants.ahead(levels, now)
        )
        began = perf_counter()
        plan = self._policy(state)
        self.planning_s += perf_counter() - began
        self.looked_at += len(waiting)
        self._carry_out(plan, now)

    def _matches(self, ticket: Waiting) -> Matches:
        return self._prefixes.match(ticket.block_hashes)

    def _carry_out(self, plan: Plan, now: float) -> None:
        for sequence in plan.held:
            job, ticket = self._waiting[sequence]
            if ticket.held_since == inf:
                self._waiting[sequence] = (job, replace(ticket, held_since=now))
        for sequence, choice in plan.grants.items():
            job, ticket = self._waiting.pop(sequence)
            self._grant(job, ticket, choice, now)
        if not self._waiting:
            self._tenants.all_served()
        # As the real one: at once while something fits, soon where it has to wait for a better worker.
        if plan.grants and self._waiting:
            self._wake(now)
        elif self._waiting:
            self._at(now + LOOK_AGAIN_S, self._wake)

    def _grant(self, job: Job, ticket: Waiting, choice: Choice, now: float) -> None:
        worker = self._workers[choice.worker]
        self._tenants.promise(job.tenant, job.prompt)
        job.worker, job.granted, job.predicted = choice.worker, now, choice.cached
        room = (ticket.kv_tokens - choice.cached, job.prompt - choice.cached)
        worker.expects(*room)
        self._expect(choice.worker, array("Q", ticket.block_hashes), now)
        self._at(now + self._delays.grant_s, lambda at: self._granted(worker, job, room, at))

    def _expect(self, worker: str, blocks: "array[int]", now: float) -> None:
        """As `CachedBlocks.sent`."""
        known = self._prefixes.match(blocks.tobytes()).get(worker, 0)
        self._expected.sent(worker, blocks[known:], now)
        self._prefixes.stored(worker, reversed(blocks[known:]))

    def _granted(self, worker: _Worker, job: Job, room: tuple[int, int], now: float) -> None:
        worker.has(*room)
        worker.engine.add(job, now)
        self._news(worker, now)
        self._tell(worker, now)
        self._plan_step(worker)

    def _plan_step(self, worker: _Worker) -> None:
        worker.version += 1
        if worker.engine.at < inf:
            self._at(
                worker.engine.at, lambda at, worker=worker, version=worker.version: self._step(worker, version, at)
            )

    def _step(self, worker: _Worker, version: int, now: float) -> None:
        if version != worker.version:
            return  # something was added meanwhile: its row ends earlier
        over = worker.engine.advance()
        for job in worker.engine.begun:
            self._queued[job.tenant] -= 1
        for job in over:
            self._tenants.served(job.tenant, job.prompt + job.output)
        self.done += over
        self._news(worker, now)
        self._tell(worker, now)
        self._plan_step(worker)

    def _news(self, worker: _Worker, now: float) -> None:
        news, worker.engine.cache.news = worker.engine.cache.news, []
        if news:
            self._at(now + self._delays.events_s, lambda _, news=news: self._learn(worker.name, news))

    def _learn(self, name: str, news: Sequence[tuple[bool, int]]) -> None:
        for stored, block in news:
            self._expected.come(name, (block,))
            if stored:
                self._prefixes.stored(name, (block,))
            else:
                self._prefixes.removed(name, (block,))

    def _tell(self, worker: _Worker, now: float) -> None:
        if not worker.told:
            worker.told = True
            self._at(now + self._delays.heartbeat_s, lambda at, worker=worker: self._heard(worker, at))

    def _heard(self, worker: _Worker, now: float) -> None:
        worker.told = False
        worker.seen, worker.seen_at = worker.look(), now
        if self._waiting or self._backlog_from < len(self._backlog):
            self._wake(now)
