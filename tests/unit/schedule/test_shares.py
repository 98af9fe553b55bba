"""Tenants that always wait get tokens by their weights, whatever they ask for and however much is free."""

import asyncio
import itertools

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.schedule.fairness import Tenants
from stages.schedule.prefixes import packed
from tests.unit.schedule.bench import Bench
from tests.unit.schedule.fleet import Fleet
from tests.unit.schedule.stand_ins import ticket

SMALLEST, LARGEST = 20, 100
"""Tokens of a prompt: none is so large that it counts as a long one."""

SLOTS = 4
WORKERS = ["w1", "w2"]

sizes = st.lists(st.integers(SMALLEST, LARGEST), min_size=1, max_size=8)


class Market:
    """Tenants who always have enough waiting for a whole plan. `sizes` are those of each one's tickets, in turn."""

    def __init__(self, weights: dict[str, float], sizes: dict[str, list[int]], *, hashed: bool) -> None:
        self.weights = weights
        self.fleet = Fleet(WORKERS)
        self.bench = Bench(self.fleet)
        self.bench.scheduler.tenants = Tenants(weights)
        self._sizes = {tenant: itertools.cycle(of) for tenant, of in sizes.items()}
        self._sequences = itertools.count(1)
        self._hashed = hashed

    async def turn(self, slots: int) -> int:
        """One plan, with so many slots free on every worker. Returns the tokens that it gave."""
        self._fill_up()
        for name, worker in self.fleet.workers.items():
            worker.held, worker.slots, worker.kv_tokens = set(), slots, 10_000
            self.bench.scheduler.heard(worker.status(name, 0), self.bench.now)
        before = self.fleet.promised.total()
        self.bench.later += 0.1
        await self.bench.tick()
        return self.fleet.promised.total() - before

    def apart(self) -> float:
        """How far the tenant that had most is from the one that had least, by weight."""
        had = [self.fleet.promised[tenant] / weight for tenant, weight in self.weights.items()]
        return max(had) - min(had)

    def _fill_up(self) -> None:
        waiting = [held.ticket.tenant for held in self.bench.scheduler.window]
        for tenant, lengths in self._sizes.items():
            for length in itertools.islice(lengths, 2 * SLOTS - waiting.count(tenant)):
                sequence = next(self._sequences)
                one = ticket(f"r{sequence}", tenant=tenant, prompt=length, deadline_ms=10**9)
                if self._hashed:
                    one = msgspec.structs.replace(one, block_hashes=packed([sequence]))
                self.bench.pull(one, sequence)


@settings(max_examples=40, deadline=None)
@given(
    weights=st.dictionaries(st.sampled_from("abcd"), st.sampled_from([0.5, 1.0, 2.0, 7.0]), min_size=2),
    lengths=st.fixed_dictionaries(dict.fromkeys("abcd", sizes)),
    slots=st.lists(st.integers(0, SLOTS), max_size=20),
    hashed=st.booleans(),
)
def test_no_tenant_gets_ahead_of_its_share(
    weights: dict[str, float], lengths: dict[str, list[int]], slots: list[int], hashed: bool
) -> None:
    """By weight, nobody is ahead of anybody by more than one request and what one plan gives."""

    async def scenario() -> None:
        market = Market(weights, {tenant: lengths[tenant] for tenant in weights}, hashed=hashed)
        most = 0
        for free in slots:
            most = max(most, await market.turn(free))
            assert market.apart() <= (LARGEST + most) / min(weights.values())

    asyncio.run(scenario())


async def test_in_the_long_run_shares_are_exact() -> None:
    """Two hundred plans: the smaller requests of one tenant are no disadvantage, nor an advantage."""
    market = Market({"a": 1.0, "b": 1.0, "c": 2.0}, {"a": [20], "b": [100], "c": [37, 55]}, hashed=False)
    for _ in range(200):
        await market.turn(SLOTS)

    assert market.apart() < 2 * LARGEST
    assert market.fleet.promised["a"] > 10_000
