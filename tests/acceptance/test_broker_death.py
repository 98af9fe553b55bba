"""The embedded broker of `headrace up` dies in mid-answer: it is started again, and nobody notices but a pause."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace import Headrace
from load.pipeline import Pipeline
from tests.acceptance.conftest import TWO_OF_EACH
from tests.acceptance.processes import deaths
from tests.acceptance.streams import begin, begun, ended
from tests.acceptance.waiting import until

pytestmark = pytest.mark.timeout(180)

STREAMS, TOKENS, STEP_MS = 12, 200, 25


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Pipeline]:
    """Two replicas of every stage and an embedded broker. Its end has to be a clean one."""
    arguments = ["--engine", "simulated", *TWO_OF_EACH, "--set", f"inference.simulated_step_ms={STEP_MS}"]
    pipeline = Pipeline(tmp_path, arguments)
    yield pipeline
    assert pipeline.stop() == 0, pipeline.output[-3000:]


def broker_of(pipeline: Pipeline) -> psutil.Process | None:
    """The nats-server under `headrace up`, if there is one now."""
    children = psutil.Process(pipeline.process.pid).children()
    return next((child for child in children if child.name() == "nats-server"), None)


async def test_it_is_started_again(own_broker: Pipeline) -> None:
    """SIGKILL in mid-answer, twice: same address, same store; every answer is right, and no stage has died of it."""
    async with Headrace(own_broker.url) as client:
        for number in range(2):
            streams = [begin(client, 100 * number + each, TOKENS) for each in range(STREAMS)]
            await begun(streams)
            before = broker_of(own_broker)
            assert before is not None
            before.send_signal(signal.SIGKILL)
            await until(lambda: broker_of(own_broker) not in (None, before), "another broker")  # noqa: B023 - used at once
            print(f"longest gap: {await ended(streams, 90):.1f} s")
    assert deaths(own_broker) == []
