"""Schemathesis against the edge's own OpenAPI document: whatever is sent, no 500, and every error in the envelope."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from load.pipeline import Pipeline
from tests.acceptance.openai_clients import SIMULATED

openapi: Any = checks
EXAMPLES, MANY_EXAMPLES = 60, 400
CHECKS = [
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_schema_conformance,
    openapi.negative_data_rejection,
]
PATIENT: Any = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
WITH_A_MODEL = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize")
ENVELOPE = {"message", "type", "param", "code"}
OVERLOADED = (429, 503)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A pipeline whose answers end by themselves after a few tokens."""
    settings = ["--set", "inference.simulated_eos=0.2", "--replicas", "edge=1"]
    pipeline = Pipeline(tmp_path_factory.mktemp("quick"), ["--engine", "simulated", *settings])
    yield pipeline
    assert pipeline.stop() == 0, pipeline.output[-3000:]


def schema_of(pipeline: Pipeline) -> Any:
    """The document of the running edge."""
    loaders: Any = schemathesis.openapi
    return loaders.from_url(f"{pipeline.api_url.removesuffix('/v1')}/openapi.json")


def check(case: Any) -> None:
    """Sends it; nobody else asks, so nothing is overloaded, and only a deadline that somebody set passes."""
    response = case.call(timeout=60)
    late = response.status_code == 504 and case.body.get("deadline_s") is not None
    assert response.status_code < 500 or late
    assert response.status_code not in OVERLOADED
    if response.status_code >= 400 and case.method != "HEAD":
        assert response.json().keys() == {"error"}, response.text
        assert response.json()["error"].keys() == ENVELOPE, response.text
        assert response.json()["error"]["message"]
    case.validate_response(response, checks=CHECKS)


def check_all(pipeline: Pipeline, examples: int) -> dict[str, int]:
    """So many cases of every operation, half of them wrong on purpose; how many there were, by operation."""
    schema = schema_of(pipeline)
    sent: dict[str, int] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            with contextlib.suppress(Unsatisfiable):  # nothing can be wrong about an operation without parameters
                _send(operation, mode, examples // 2, sent)
    return sent


def _send(operation: Any, mode: GenerationMode, examples: int, sent: dict[str, int]) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=PATIENT)
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        sent[operation.label] = sent.get(operation.label, 0) + 1
        if mode is GenerationMode.POSITIVE and case.path in WITH_A_MODEL:
            case.body |= {"model": SIMULATED}  # a model that does not exist is where everything else would end
        check(case)

    run()


@pytest.mark.timeout(180)
def test_whatever_is_sent(quick: Pipeline) -> None:
    """A few cases of every operation, right and wrong ones: no 500, every error in the envelope (C5)."""
    sent = check_all(quick, EXAMPLES)
    print(sent)
    assert {"POST /v1/chat/completions", "POST /v1/completions", "POST /v1/responses", "POST /tokenize"} <= set(sent)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_whatever_is_sent_at_length(quick: Pipeline) -> None:
    """The same with many more cases."""
    check_all(quick, MANY_EXAMPLES)
