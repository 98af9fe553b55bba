"""docker-compose.dev.yml: one command, and a real model answers."""

import time

import httpx
import pytest

from broker.client import Headrace
from tests.compose.docker import docker
from tests.compose.project import Project

pytestmark = pytest.mark.timeout(1500)

STAGES = ("edge", "preprocess", "schedule", "inference", "postprocess")
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GRACE_S = 40.0


@pytest.fixture(scope="module", autouse=True)
def ready(dev: Project) -> None:
    """The model is loaded."""
    dev.wait_ready(**dict.fromkeys(STAGES, 1))


def test_it_answers_over_http(dev: Project) -> None:
    """To any OpenAI client on this machine, with the real model."""
    url = f"http://127.0.0.1:{dev.environ['HEADRACE_DEV_PORT']}/v1/chat/completions"
    answer = httpx.post(url, json={"messages": QUESTION, "temperature": 0, "max_tokens": 40}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "SmolLM2-135M-Instruct"
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]


async def test_it_answers_over_nats(dev: Project) -> None:
    """To any NATS client on this machine, as a stream."""
    async with Headrace(f"nats://127.0.0.1:{dev.environ['HEADRACE_DEV_NATS_PORT']}") as headrace:
        chunks = [chunk async for chunk in headrace.stream(messages=QUESTION, temperature=0, max_tokens=40)]
    assert "Paris" in "".join(chunk.text for chunk in chunks)
    assert len(chunks) > 1


def test_every_container_is_healthy(dev: Project) -> None:
    """By the images' own check."""
    give_up_at = time.monotonic() + 30
    while (found := {stage: _health(dev, stage) for stage in STAGES}) != dict.fromkeys(STAGES, "healthy"):
        assert time.monotonic() < give_up_at, found
        time.sleep(0.5)


def test_stopping_ends_everything_cleanly(dev: Project) -> None:
    """A soft stop, of the stages before their broker: status 0 within the grace time. The last test of this file."""
    began = time.monotonic()
    containers = [name for service in (*STAGES, "nats") for name in dev.containers(service)]
    dev.call("stop", timeout_s=2 * GRACE_S)
    assert time.monotonic() - began < GRACE_S
    assert docker("inspect", *containers, "--format", "{{.State.ExitCode}}").split() == ["0"] * len(containers)
    assert len(containers) == len(STAGES) + 1


def _health(project: Project, stage: str) -> str:
    (container,) = project.containers(stage)
    return docker("inspect", container, "--format", "{{.State.Health.Status}}").strip()
