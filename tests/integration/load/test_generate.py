"""`python -m load.generate` as it is typed, against a whole pipeline with the simulated engine."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from load.pipeline import ROOT, Pipeline

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One process of every stage, the edge too; steps take 2 ms."""
    arguments = ["--engine", "simulated", "--replicas", "edge=1", "--set", "inference.simulated_step_ms=2"]
    running = Pipeline(tmp_path_factory.mktemp("generate"), arguments)
    yield running
    assert running.stop() == 0, running.output[-3000:]


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "load.generate", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def figures(*arguments: str) -> dict[str, Any]:
    done = generate("--json", "--check-text", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize("target", ["nats", "http"])
def test_every_answer_is_right(pipeline: Pipeline, target: str, tmp_path: Path) -> None:
    """Over both ways in, chats of two turns behind shared prefixes: no text lacks a piece or has one twice.

    Prompts have the wanted length as the pipeline itself counts it.
    """
    url = pipeline.url if target == "nats" else pipeline.api_url
    work = "--requests 24 --concurrency 6 --input 100 --output 20 --turns 2 --shared-prefix 2,60,1"
    records = tmp_path / "records.jsonl"
    found = figures("--target", target, "--url", url, "--records", str(records), *work.split())
    assert (found["requests"], found["wrong_text"], found["errors"], found["rejected"]) == (24, 0, {}, 0)
    assert (found["model"], found["unfinished"]) == ("simulated", 0)
    assert 0 < found["events_per_token"] <= 1
    assert found["ttft_ms"]["max"] <= found["e2e_ms"]["max"]
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert {row["output_tokens"] for row in rows} == {20}
    first = [row["prompt_tokens"] for row in rows if row["prompt_tokens"] < 200]
    assert len(first) == 12
    assert first == pytest.approx([160] * 12, rel=0.01)


def test_let_go(pipeline: Pipeline) -> None:
    """A window that closes on running answers lets them go: soon the engine holds nothing of them any more."""
    found = figures(
        *("--target", "nats", "--url", pipeline.url, "--concurrency", "4"),
        *("--input", "40", "--output", "4000", "--warm-up", "0.2", "--duration", "0.5"),
    )
    assert (found["requests"], found["errors"], found["wrong_text"]) == (0, {}, 0)
    deadline = time.monotonic() + 10
    while running := sum(worker["running"] for worker in pipeline.status()["workers"]):
        assert time.monotonic() < deadline, f"{running} still run"
