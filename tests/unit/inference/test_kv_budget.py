"""The KV cache that a worker gives away: what is shared counts once, and nothing that fits is refused."""

from collections.abc import Iterator
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from schemas.ticket import EngineSampling
from stages.inference.engine import EngineLoad, EngineRequest
from stages.inference.kv_budget import KvBudget

BLOCK = 4
RESERVE = 10


def request(name: str, prompt: int, max_tokens: int = 50, generated: int = 0) -> EngineRequest:
    return EngineRequest(name, [1] * prompt, EngineSampling(max_tokens=max_tokens), [2] * generated)


def measure(used: int, waiting: int = 0) -> EngineLoad:
    return EngineLoad(waiting=waiting, kv_used=used)


def test_counts_likely_output_and_growth() -> None:
    """Prompt and the reserve at first, the real length when an answer outgrows it, nothing once it is over."""
    budget = KvBudget(capacity=100, reserve=RESERVE)
    one = request("a", 20)
    assert budget.need(one) == 30
    assert budget.need(request("a", 20, max_tokens=8, generated=5)) == 28
    budget.take(one)
    assert budget.free == 70
    budget.grow("a", 29)
    assert budget.free == 70
    budget.grow("a", 60)
    assert budget.free == 40
    budget.give_back("a", 40)
    budget.give_back("a")
    assert budget.free == 100


def test_an_idle_engine_takes_what_its_context_allows() -> None:
    """A request larger than the budget would wait for ever otherwise."""
    budget = KvBudget(capacity=100, reserve=90)
    large = request("a", 20, max_tokens=500)
    assert not budget.fits(large, alone=False)
    assert budget.fits(large, alone=True)
    budget.take(large)
    assert budget.free == 0


def test_without_a_measure_contexts_count_in_full() -> None:
    """What an engine does not tell is not believed: a wrong expectation would go on as long as its request."""
    budget = KvBudget(capacity=100, reserve=RESERVE)
    assert budget.need(request("a", 40), cached=32) == 50
    budget.take(request("a", 40), cached=32)
    budget.stepped(0, EngineLoad())
    assert budget.free == 50


def test_sixty_four_behind_one_prefix() -> None:
    """A cached prefix that slept is missed once in one tick, however many wake it; the step that does counts it."""
    budget = KvBudget(capacity=10_000, reserve=RESERVE)
    budget.stepped(0, measure(0))
    for number in range(64):
        one = request(f"r{number}", 1010)
        assert budget.need(one, cached=1000) == 20
        assert budget.fits(one, alone=False, cached=1000)
        budget.take(one, cached=1000)
    assert budget.used == 64 * 20
    truth = 1000 + 64 * 10
    budget.stepped(0, measure(1000))
    assert budget.used >= 1000, "what has woken counts, though no prompt is complete"
    for number in range(64):
        budget.began(f"r{number}")
    budget.stepped(64, measure(truth + 64))
    assert budget.used == truth + 64 * RESERVE


def test_a_long_prompt_counts_once_while_it_is_computed() -> None:
    """What is computed of it already is in the measure: it does not count as still to come as well."""
    budget = KvBudget(capacity=1000, reserve=RESERVE)
    budget.take(request("short", 100))
    budget.began("short")
    budget.stepped(1, measure(104))
    before = budget.used
    budget.take(request("long", 500))
    for step in range(1, 5):
        budget.stepped(1, measure(104 + step * 100))
        assert budget.used <= before + 510 + step


def test_what_was_driven_out_comes_back() -> None:
    """More waiting than is new: the engine ran out of KV cache. Until it has room again contexts count in full."""
    budget = KvBudget(capacity=300, reserve=RESERVE)
    for name in "ab":
        budget.take(request(name, 100), cached=80)
        budget.began(name)
    budget.stepped(2, measure(130))
    assert budget.used == 148
    budget.stepped(1, measure(100, waiting=1))
    assert budget.used == 220
    budget.stepped(1, measure(134))
    assert budget.used == 150


class Truth:
    """An engine that shares prefixes of one text, computes prompts chunk by chunk, and measures itself."""

    def __init__(self) -> None:
        self.budget = KvBudget(capacity=400, reserve=RESERVE)
        self.names: Iterator[int] = count()
        self.lengths: dict[str, int] = {}
        self.computed: dict[str, int] = {}
        self.produced: dict[str, int] = {}
        self.cached: dict[str, int] = {}
        self.limit: dict[str, int] = {}

    def used(self) -> int:
        """Blocks in use: prefixes once, the rest for each."""
        shared = max((self.cached[name] for name, done in self.computed.items() if done), default=0)
        own = sum(-(-(done - self.cached[name]) // BLOCK) * BLOCK for name, done in self.computed.items() if done)
        return shared + own

    def add(self, prompt: int, cached: int) -> None:
        name = f"r{next(self.names)}"
        cached = min(cached, prompt - 1) // BLOCK * BLOCK
        one = request(name, prompt)
        if self.budget.fits(one, alone=False, cached=cached):
            self.limit[name] = self.budget.take(one, cached)
            self.lengths[name], self.computed[name], self.produced[name] = prompt, 0, 0
            self.cached[name] = cached

    def end(self, index: int) -> None:
        for name in list(self.computed)[index : index + 1]:
            self.budget.give_back(name, self.produced[name])
            for book in (self.lengths, self.computed, self.produced, self.cached, self.limit):
                del book[name]

    def step(self, tokens: int) -> None:
        brought = 0
        for name, length in self.lengths.items():
            missing = length - max(self.computed[name], self.cached[name])
            chunk = min(missing, tokens) if not self.produced[name] else 1
            if not self.produced[name]:
                tokens -= chunk
            if chunk:
                self.computed[name] = max(self.computed[name], self.cached[name]) + chunk
            if self.computed[name] >= length:
                brought += self._bring(name, length)
        self.budget.stepped(brought, measure(self.used()))

    def _bring(self, name: str, length: int) -> int:
        if not self.produced[name]:
            self.budget.began(name)
        self.produced[name] += 1
        if (now := length + self.produced[name]) > self.limit[name]:
            self.limit[name] = now + BLOCK - 1
            self.budget.grow(name, self.limit[name])
        return 1

    def most(self) -> int:
        """What may count at most: the measure, what is missing of prompts without a token, and reserves."""
        missing = sum(self.lengths[name] - self.cached[name] for name in self.lengths if not self.produced[name])
        reserves = sum(self.limit[name] - length - self.produced[name] for name, length in self.lengths.items())
        return self.used() + missing + reserves


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 90), st.integers(0, 60)),
        st.tuples(st.just("end"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("step"), st.integers(0, 80), st.just(0)),
    ),
    max_size=60,
)


@given(EVENTS)
def test_it_refuses_nothing_that_fits_and_ends_at_nothing(events: list[tuple[str, int, int]]) -> None:
    """By the measured truth and the reserves there is never less room than it says; and once all has ended, all."""
    truth = Truth()
    truth.step(0)
    for event, number, cached in events:
        if event == "add":
            truth.add(number, cached)
        elif event == "end":
            truth.end(number)
        else:
            truth.step(number)
            assert 0 <= truth.budget.used <= truth.most()
            if all(truth.produced.values()):
                assert truth.budget.used >= min(truth.used(), sum(truth.limit.values())), "all of it is known"
        assert truth.budget.used >= 0
    while truth.lengths:
        truth.end(0)
    assert (truth.budget.used, truth.budget.free) == (0, 400)
