"""How many replicas: within the limits whatever is read, no more and no less than the load needs."""

from dataclasses import replace
from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.autoscaling.decision import Decision, Memory, decide
from stages.autoscaling.rules import Rules
from stages.autoscaling.seen import Seen

RULES = Rules(least=1, most=8)
EVERY_S = 2.0

anything = st.one_of(st.floats(), st.sampled_from([nan, inf, -inf, -1.0, 0.0]))
readings = st.builds(
    Seen,
    at=st.floats(0, 1e6),
    replicas=st.integers(-3, 20),
    ready=st.integers(-3, 20),
    waiting=st.integers(-3, 10_000),
    backlog_s=anything,
    busy=anything,
    computing=anything,
)


class Loop:
    """A stage in virtual time: `demand` full replicas are asked for; what is asked to start takes `start_s`."""

    def __init__(self, rules: Rules, replicas: int) -> None:
        self.rules = rules
        self.memory = Memory()
        self.now = 0.0
        self.queue_s = 0.0
        self.ready_at = [0.0] * replicas
        self.decisions: list[Decision] = []

    @property
    def replicas(self) -> int:
        return len(self.ready_at)

    def run(self, demand: float, seconds: float) -> list[int]:
        """The replicas after every look."""
        return [self._look(demand) for _ in range(int(seconds / EVERY_S))]

    def _look(self, demand: float) -> int:
        self.now += EVERY_S
        ready = sum(at <= self.now for at in self.ready_at)
        self.queue_s = max(self.queue_s + (demand - ready) * EVERY_S, 0.0)
        backlog_s = self.queue_s / ready if ready else (-1.0 if demand else 0.0)
        waiting = int(self.queue_s * 10) + (demand > 0 and not ready)
        busy = min(demand / ready, 1.0) if ready and not self.queue_s else (1.0 if ready else -1.0)
        seen = Seen(self.now, self.replicas, ready, waiting, backlog_s, busy)
        decision, self.memory = decide(self.rules, self.memory, seen)
        self.decisions.append(decision)
        more = decision.replicas - self.replicas
        self.ready_at = self.ready_at[: decision.replicas] + [self.now + self.rules.start_s] * max(more, 0)
        return decision.replicas


@given(st.lists(readings, max_size=30), st.integers(0, 3))
def test_any_reading_stays_within_the_limits(seen: list[Seen], least: int) -> None:
    """NaN, infinite, negative, clocks that go back: the answer is a number of replicas that is allowed."""
    rules, memory = replace(RULES, least=least), Memory()
    for each in seen:
        decision, memory = decide(rules, memory, each)
        assert least <= decision.replicas <= rules.most
        assert decision.why


@given(st.integers(1, 8), st.floats(0, 100), st.floats(0, 100))
def test_more_work_never_means_fewer(replicas: int, one: float, other: float) -> None:
    """Monotone in the backlog."""
    less, more = sorted((one, other))
    asked = [
        decide(RULES, Memory(), Seen(10.0, replicas, replicas, int(10 * wait), wait, 1.0))[0].replicas
        for wait in (less, more)
    ]
    assert asked[0] <= asked[1]


@settings(max_examples=30)
@given(st.floats(0.1, 7), st.integers(1, 8))
def test_a_steady_load_settles(demand: float, begin: int) -> None:
    """In a closed loop the number stops changing, carries the load, and is not far above it."""
    loop = Loop(replace(RULES, remember_s=120.0), begin)
    loop.run(demand, 1200)
    last = loop.run(demand, 600)
    assert set(last) == {last[-1]}, "no coming and going"
    assert demand <= last[-1] * RULES.up_busy + 1e-6 or last[-1] == RULES.most
    assert last[-1] <= demand / RULES.down_busy + 1
    assert not loop.queue_s or last[-1] == RULES.most


@settings(max_examples=50)
@given(st.lists(st.floats(0, 8), min_size=2, max_size=8))
def test_never_fewer_soon_after_more(demands: list[float]) -> None:
    """A replica that was just asked for is not sent away again."""
    loop = Loop(RULES, 1)
    counts = [count for demand in demands for count in loop.run(demand, 60)]
    ups = [index for index, (a, b) in enumerate(pairwise(counts), 1) if b > a]
    for up in ups:
        within = counts[up : up + int(RULES.cooldown_s / EVERY_S)]
        assert within == sorted(within), "it only grows meanwhile"


def test_a_step_is_not_overshot() -> None:
    """What starts already counts: a load of four full replicas asks for what four need, not for more and more."""
    loop = Loop(RULES, 1)
    counts = loop.run(4.0, 600)
    assert max(counts) <= 8
    assert counts[-1] >= 5
    assert loop.queue_s == 0.0


def test_from_zero_and_to_zero() -> None:
    """What waits without a replica has one started; none is left after `idle_s` of nothing, and not before."""
    loop = Loop(replace(RULES, least=0, remember_s=60), 0)
    assert set(loop.run(0.0, 60)) == {0}
    assert loop.run(0.5, EVERY_S) == [1]
    loop.run(0.5, 600)
    idle = loop.run(0.0, RULES.idle_s + 60)
    assert idle[int((RULES.idle_s - 10) / EVERY_S)] == 1
    assert idle[-1] == 0
    assert "no work" in next(each.why for each in reversed(loop.decisions) if ": 1 -> 0" in each.why)


def test_unknown_never_takes_one_away() -> None:
    """Nobody can tell what waits: what is there stays, for as long as that lasts."""
    memory = Memory()
    for look in range(2000):
        decision, memory = decide(RULES, memory, Seen(look * EVERY_S, 4, 4, 3, -1.0, 0.0))
        assert decision.replicas >= 4


def test_the_reason_has_the_numbers() -> None:
    """A person can follow it."""
    decision, _ = decide(RULES, Memory(), Seen(10.0, 2, 2, 100, 12.3, 1.0))
    assert decision.replicas > 2
    assert "12.3 s of work wait" in decision.why
    assert f": 2 -> {decision.replicas}" in decision.why


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("most", {"most": 0, "least": 0}),
        ("least", {"least": 9}),
        ("up_busy", {"up_busy": 1.5}),
        ("down_busy", {"down_busy": 0.9}),
        ("idle_s", {"idle_s": nan}),
        ("cooldown_s", {"cooldown_s": -1.0}),
    ],
)
def test_wrong_rules_are_named(field: str, values: dict[str, float]) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=rf"^{field} must be"):
        Rules(**({"least": 1, "most": 8} | values))  # pyright: ignore[reportArgumentType]
