"""What a worker learns of its engine's speed: it predicts steps, follows a change, and is never nonsense."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.control import Pace
from stages.inference.pace import ENOUGH_WINDOWS, PaceLearner


@dataclass
class Load:
    """A batch that grows and shrinks, and prompts that come now and then and are computed in chunks of 2,048 tokens."""

    dice: random.Random
    decoding: int = 8
    prompt: int = 0
    chunks_left: int = 0

    def steps(self, pace: Pace, noise: float, busy_s: float) -> Iterator[tuple[float, int, int, bool]]:
        """Seconds, sequences with a token, tokens of a prompt that brought its first, others under way."""
        passed = 0.0
        while passed < busy_s:
            chunk, told = self._next_chunk()
            seconds = time_of(pace, self.decoding + bool(told), chunk) * self.dice.uniform(1 - noise, 1 + noise)
            yield seconds, self.decoding + bool(told), told, self.chunks_left > 0
            passed += seconds
            self.decoding = min(max(self.decoding + self.dice.choice((-1, 0, 0, 1)), 0), 48)

    def _next_chunk(self) -> tuple[int, int]:
        """Tokens of a prompt that this step computes, and all of that prompt's if it is the last of them."""
        if not self.chunks_left and (self.dice.random() < 0.1 or not self.decoding):
            self.prompt = self.dice.choice((100, 700, 2000, 6000))
            self.chunks_left = -(-self.prompt // 2048)
        if not self.chunks_left:
            return 0, 0
        self.chunks_left -= 1
        if self.chunks_left:
            return 2048, 0
        return (self.prompt - 1) % 2048 + 1, self.prompt


def time_of(pace: Pace, decoding: int, prompt_tokens: int) -> float:
    return pace.base + pace.decode * decoding + pace.prefill * prompt_tokens


def feed(learner: PaceLearner, load: Load, pace: Pace, *, noise: float = 0.05, busy_s: float = 40.0) -> None:
    for seconds, decoding, prompt_tokens, prefilling in load.steps(pace, noise, busy_s):
        learner.stepped(seconds, decoding, prompt_tokens, prefilling=prefilling)


def worst_error(found: Pace | None, true: Pace) -> float:
    """In proportion, over steps as they come: decode alone, and chunks of prompts beside it."""
    assert found is not None
    cases = [(1, 0), (8, 0), (32, 0), (4, 300), (8, 2048), (1, 2048)]
    return max(abs(time_of(found, *case) / time_of(true, *case) - 1) for case in cases)


paces = st.builds(Pace, st.floats(2e-3, 3e-2), st.floats(0, 1e-3), st.floats(5e-6, 1e-4))


@settings(max_examples=40, deadline=None)
@given(paces, st.integers(0, 1000))
def test_it_predicts_the_steps_that_come(pace: Pace, seed: int) -> None:
    """Within 10 %, from 40 s of steps that vary by 5 %, whatever the engine's speed."""
    learner = PaceLearner()
    feed(learner, Load(random.Random(seed)), pace)
    assert worst_error(learner.pace, pace) < 0.1


def test_it_follows_a_change() -> None:
    """Half as fast, then four times as fast: within a few seconds that the engine is busy."""
    slow, fast = Pace(0.02, 4e-4, 4e-5), Pace(0.005, 1e-4, 1e-5)
    learner, load = PaceLearner(), Load(random.Random(5))
    feed(learner, load, Pace(0.01, 2e-4, 2e-5), busy_s=60)
    for pace in (slow, fast):
        feed(learner, load, pace, busy_s=10)
        assert worst_error(learner.pace, pace) < 0.15


def test_one_bad_pause_changes_little() -> None:
    """A step of ten seconds, as when a kernel is compiled, is no new pace."""
    pace = Pace(0.01, 2e-4, 2e-5)
    learner, load = PaceLearner(), Load(random.Random(6))
    feed(learner, load, pace)
    learner.stepped(10.0, 3, 0, prefilling=False)
    feed(learner, load, pace, busy_s=0.3)
    assert worst_error(learner.pace, pace) < 0.1


def test_what_was_learned_is_kept_while_nothing_new_is_to_be_learned() -> None:
    """A minute with one batch that never changes does not take away what a step, and a prompt, cost."""
    pace = Pace(0.01, 2e-4, 2e-5)
    learner = PaceLearner()
    feed(learner, Load(random.Random(7)), pace)
    for _ in range(6000):
        learner.stepped(time_of(pace, 8, 0), 8, 0, prefilling=False)
    assert worst_error(learner.pace, pace) < 0.1


def test_it_says_nothing_before_it_knows() -> None:
    """Without a prompt, or without steps enough, there is no pace."""
    learner = PaceLearner()
    assert learner.pace is None
    for _ in range(1000):
        learner.stepped(0.01, 4, 0, prefilling=False)
    assert learner.pace is None
    learner = PaceLearner()
    for _ in range(ENOUGH_WINDOWS):
        learner.stepped(0.3, 1, 5000, prefilling=False)
    assert learner.pace is None


def test_a_batch_that_never_changes_costs_what_it_costs() -> None:
    """Nobody can tell a step from its sequences there: nearly all is put down to the step."""
    learner = PaceLearner()
    for number in range(2000):
        prompt_tokens = 0 if number % 50 else 1000
        learner.stepped(0.01 + 2e-5 * prompt_tokens, 1, prompt_tokens, prefilling=False)
    found = learner.pace
    assert found is not None
    assert found.base > 8 * found.decode
    assert math.isclose(found.base + found.decode, 0.01, rel_tol=0.05)


anything = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 2)
counts = st.integers(-5, 5000) | st.integers(-(10**30), 10**30)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(anything, counts, counts, st.booleans()), max_size=60))
def test_it_is_never_nonsense(steps: list[tuple[float, int, int, bool]]) -> None:
    """Whatever comes, the numbers are finite and not negative."""
    learner = PaceLearner()
    for seconds, decoding, prompt_tokens, prefilling in steps * 3:
        learner.stepped(seconds, decoding, prompt_tokens, prefilling=prefilling)
        found = learner.pace
        assert found is None or all(math.isfinite(x) and x >= 0 for x in (found.base, found.decode, found.prefill))
