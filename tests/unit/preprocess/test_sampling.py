"""What holds where a request leaves something open, and the room that a context has."""

import pytest

from schemas.codec import decode, encode
from schemas.faults import RequestFault
from schemas.request import Sampling
from schemas.ticket import EngineSampling
from stages.preprocess.sampling import for_choice, resolve
from tests.unit.preprocess.vocabularies import card


def test_the_request_goes_before_the_model_before_the_neutral_value() -> None:
    """Each value by itself."""
    model = card(defaults=EngineSampling(max_tokens=0, temperature=0.6, top_p=0.9, top_k=20, stop_token_ids=[7]))
    resolved = resolve(Sampling(temperature=0.0, top_k=-1), model, 10, "messages")
    assert (resolved.temperature, resolved.top_p, resolved.top_k, resolved.min_p) == (0.0, 0.9, 0, 0.0)
    assert resolved.stop_token_ids == [7]
    assert resolved.max_tokens == 2038


def test_values_reach_the_engine_in_its_types() -> None:
    """Ids as numbers, and `top_k` never beyond the vocabulary."""
    wanted = Sampling(logit_bias={"5": -1.5}, top_k=10**9, stop_token_ids=[], logprobs=0, seed=-1, ignore_eos=True)
    resolved = resolve(wanted, card(), 1, "prompt")
    assert resolved.logit_bias == {5: -1.5}
    assert (resolved.top_k, resolved.logprobs, resolved.seed, resolved.ignore_eos) == (258, 0, -1, True)
    assert decode(EngineSampling, encode(resolved)) == resolved


class TestBudget:
    """B15, B16: prompt and answer fit the context together, or the numbers are named."""

    @pytest.mark.parametrize(("prompt", "asked", "expected"), [(100, 1948, 1948), (100, None, 1948), (2047, None, 1)])
    def test_an_exact_fit_is_accepted(self, prompt: int, asked: int | None, expected: int) -> None:
        """Nothing asked for: the rest of the context."""
        assert resolve(Sampling(max_tokens=asked), card(), prompt, "messages").max_tokens == expected

    def test_too_much_is_refused_with_the_numbers(self) -> None:
        """B15: context, prompt and what was asked for."""
        with pytest.raises(RequestFault) as caught:
            resolve(Sampling(max_tokens=2045), card(), 8, "messages")
        fault = caught.value.fault
        assert (fault.code, fault.param) == ("context_length_exceeded", "sampling.max_tokens")
        assert all(number in fault.message for number in ("2048", "8", "2045"))

    @pytest.mark.parametrize("asked", [None, 1])
    def test_a_prompt_that_fills_the_context(self, asked: int | None) -> None:
        """The prompt's field is named then."""
        with pytest.raises(RequestFault) as caught:
            resolve(Sampling(max_tokens=asked), card(), 2048, "messages")
        assert caught.value.fault.param == "messages"
        assert caught.value.fault.code == "context_length_exceeded"

    def test_the_models_own_limit(self) -> None:
        """A default of the model holds where nothing was asked for, and yields to the context."""
        model = card(defaults=EngineSampling(max_tokens=100))
        assert resolve(Sampling(), model, 10, "messages").max_tokens == 100
        assert resolve(Sampling(), model, 2000, "messages").max_tokens == 48

    def test_a_least_length_beyond_the_greatest(self) -> None:
        """Also where the greatest comes of the context."""
        for sampling, prompt in ((Sampling(min_tokens=5, max_tokens=4), 1), (Sampling(min_tokens=2000), 100)):
            with pytest.raises(RequestFault) as caught:
                resolve(sampling, card(), prompt, "messages")
            assert caught.value.fault.param == "sampling.min_tokens"


class TestChoices:
    """Seeds of the choices of one request."""

    def test_each_choice_has_the_next_seed(self) -> None:
        """Choice 0 has the request's own."""
        sampling = EngineSampling(max_tokens=1, seed=41)
        assert [for_choice(sampling, choice).seed for choice in range(3)] == [41, 42, 43]

    def test_without_a_seed_there_is_none(self) -> None:
        """Then the engine draws."""
        assert for_choice(EngineSampling(max_tokens=1), 3).seed is None

    def test_the_greatest_seed_goes_round(self) -> None:
        """64 bits are what an engine takes."""
        assert for_choice(EngineSampling(max_tokens=1, seed=2**63 - 1), 1).seed == -(2**63)
