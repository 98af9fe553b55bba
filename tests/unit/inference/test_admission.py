"""What may go into an engine: nothing that could kill it for everybody, and nothing that is over."""

import dataclasses

import pytest

from schemas.ticket import EngineSampling, Structured
from stages.inference.admission import already_over, fault_of
from stages.inference.engine import EngineFacts, EngineRequest

FACTS = EngineFacts(vocab_size=100, context_length=32, slots=4, kv_tokens=64, block_size=16, step_tokens=64)


def request(prompt: list[int], generated: list[int] | None = None, **sampling: object) -> EngineRequest:
    values = {"max_tokens": 8, **sampling}
    return EngineRequest("a", prompt, EngineSampling(**values), generated or [])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("wrong", "code", "param"),
    [
        (request([]), "invalid_request", "prompt"),
        (request([1, 100]), "internal", ""),
        (request([1, 2**31]), "internal", ""),
        (request([1], [100]), "internal", ""),
        (request([1] * 32), "context_length_exceeded", "prompt"),
        (request([1], stop_token_ids=[100]), "invalid_request", "sampling"),
        (request([1], logit_bias={191222: -100.0}), "invalid_request", "sampling"),
        (request([1], logit_bias={-1: 1.0}), "invalid_request", "sampling"),
        (request([1], allowed_token_ids=[3, 100]), "invalid_request", "sampling"),
        (request([1], structured=Structured("regex", "a", param="tools")), "unsupported", "tools"),
        (request([1], max_tokens=0), "invalid_request", "sampling.max_tokens"),
    ],
)
def test_what_would_kill_an_engine_is_refused(wrong: EngineRequest, code: str, param: str) -> None:
    """Ids outside the vocabulary, in the prompt or in the sampling, and impossible lengths: a fault that names them."""
    fault = fault_of(wrong, FACTS)
    assert fault is not None
    assert (fault.code, fault.param) == (code, param)


def test_whatever_fits_is_let_in() -> None:
    """The last id of the vocabulary and the longest prompt that leaves room for one token."""
    whole = request([99] * 31, stop_token_ids=[0, 99], allowed_token_ids=[0, 99], logit_bias={99: 1.0})
    assert fault_of(whole, FACTS) is None
    holds = dataclasses.replace(FACTS, structured=True)
    assert fault_of(request([1], structured=Structured("regex", "a")), holds) is None


def test_answers_that_were_over_before() -> None:
    """A resumed answer with all its tokens, a full context or a stop id at its end has nothing to compute."""
    assert already_over(request([1], [2] * 8), FACTS) == ("length", None)
    assert already_over(request([1] * 30, [2, 2]), FACTS) == ("length", None)
    assert already_over(request([1], [2, 50], stop_token_ids=[50]), FACTS) == ("stop", 50)
    assert already_over(request([1], [2, 50], stop_token_ids=[50], max_tokens=2), FACTS) == ("stop", 50)
    assert already_over(request([1], [2] * 7), FACTS) is None
    assert already_over(request([1], [2, 50], stop_token_ids=[50], min_tokens=2), FACTS) is None, "too early to stop"
    assert already_over(request([1]), FACTS) is None
