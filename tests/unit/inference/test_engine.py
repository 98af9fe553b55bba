"""What is left of an answer for the attempt that goes on with it."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.ticket import EngineSampling
from stages.inference.engine import EngineRequest, resumed_seed

SEEDS = st.integers(-(2**63), 2**63 - 1)


def request(generated: list[int], **sampling: object) -> EngineRequest:
    values = {"max_tokens": 8, **sampling}
    return EngineRequest("a", [1], EngineSampling(**values), generated)  # pyright: ignore[reportArgumentType]


def test_limits_shrink_by_what_was_generated() -> None:
    """Max_tokens and min_tokens count the whole answer; min_tokens ends at none. All else stays."""
    kept = {"presence_penalty": 0.5, "stop_token_ids": [7], "logit_bias": {3: 1.0}, "ignore_eos": True, "logprobs": 2}
    resumed = request([2, 3, 4], min_tokens=5, **kept).remaining()
    assert resumed == request([], max_tokens=5, min_tokens=2, **kept).sampling
    assert request([2, 3, 4], min_tokens=2).remaining().min_tokens == 0
    fresh = request([], min_tokens=2, seed=5)
    assert fresh.remaining() is fresh.sampling


def test_a_seed_of_its_own_for_each_place() -> None:
    """The same seam gives the same seed; neighbouring seeds and offsets never meet; without a seed there is none."""
    derived = {(seed, offset): resumed_seed(seed, offset) for seed in range(-50, 50) for offset in range(1, 100)}
    assert len(set(derived.values())) == len(derived)
    assert request([2, 3, 4], seed=5).remaining().seed == derived[5, 3] == resumed_seed(5, 3)
    assert request([2, 3, 4]).remaining().seed is None


def test_the_seed_is_the_same_in_every_release() -> None:
    """A worker of another version goes on with the same numbers."""
    assert resumed_seed(7, 20) == 7367641563356316100


@given(SEEDS, st.integers(1, 2**31))
def test_every_seed_is_one_that_engines_take(seed: int, offset: int) -> None:
    """63 bits, never negative: what vLLM's generators and its tables of 64 signed bits hold (-1 means none there)."""
    assert 0 <= resumed_seed(seed, offset) < 2**63
