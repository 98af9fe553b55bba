"""Pipelines of real processes: a simulated one for each module that asks, one with the real engine for the session."""

from collections.abc import Iterator

import pytest

from load.pipeline import Pipeline

TWO_OF_EACH = [
    argument
    for stage in ("preprocess", "schedule", "inference", "postprocess")
    for argument in ("--replicas", f"{stage}=2")
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Two replicas of every stage, two simulated workers whose steps take 5 ms. Its end has to be a clean one."""
    arguments = ["--engine", "simulated", *TWO_OF_EACH, "--set", "inference.simulated_step_ms=5"]
    pipeline = Pipeline(tmp_path_factory.mktemp("pair"), arguments)
    yield pipeline
    status = pipeline.stop()
    assert status == 0, pipeline.output[-3000:]


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One process of every stage with vLLM and the bundled model. Its end has to be a clean one."""
    pipeline = Pipeline(tmp_path_factory.mktemp("real"), [], ready_s=150)
    yield pipeline
    status = pipeline.stop()
    assert status == 0, pipeline.output[-3000:]
