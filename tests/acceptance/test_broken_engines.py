"""An engine that hangs, and one that dies: their worker hands back and goes; every answer goes on elsewhere."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from broker.free_ports import free_port
from headrace import Headrace
from load.pipeline import Pipeline
from load.simulated_truth import prompt_of
from tests.acceptance.health import ask, watching
from tests.acceptance.streams import begin, begun, ended
from tests.acceptance.waiting import until
from tests.acceptance.wiretap import listening

pytestmark = pytest.mark.timeout(120)

TOKEN = 300
"""In no other prompt: those are of ids below 256."""

STEP_LIMIT_S = 2


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One process of each stage but inference: the tests start workers themselves."""
    running = Pipeline(tmp_path_factory.mktemp("broken"), ["--engine", "simulated", "--replicas", "inference=0"])
    yield running
    assert running.stop() == 0, running.output[-3000:]


@pytest.mark.parametrize(("fault", "noticed_within_s"), [("simulated_hang", STEP_LIMIT_S + 1), ("simulated_death", 1)])
async def test_the_worker_hands_back_and_goes(pipeline: Pipeline, fault: str, noticed_within_s: float) -> None:
    """E1, E2: the worker is not ready any more, hands back and exits with an error; the others' texts are right.

    So is the text of the one that did it, which a sound engine takes in without harm. A dead engine's worker may be
    gone before anybody asks it for its readiness; a hung one's says 503.
    """
    port, step = free_port(), {"engine": "simulated", "simulated_step_ms": "5"}
    faulty = {fault: str(TOKEN), "step_limit_s": str(STEP_LIMIT_S), "health.port": str(port)}
    victim = await asyncio.to_thread(pipeline.start_stage, "inference", **step, **faulty)
    await until(lambda: ask(port, "/ready") == 200, "the worker's readiness")
    async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap, watching(port, "/ready") as seen:
        first = 10 * noticed_within_s
        streams = [begin(client, round(first) + number, 1200) for number in range(6)]
        await begun(streams)
        struck_at = time.monotonic()
        culprit = begin(client, round(first) + 9, 20, prompt=[*prompt_of(9), TOKEN])
        sound = await asyncio.to_thread(pipeline.start_stage, "inference", **step)
        await until(lambda: victim.poll() is not None, "the worker's end")
        assert victim.returncode == 1
        gap_s = await ended([*streams, culprit])
        await tap.settled()
        assert [await tap.terminal(stream.told.id) for stream in (*streams, culprit)] == ["length"] * 7
        assert set(tap.released) >= {f"default.{stream.told.id}" for stream in (*streams, culprit)}
    gone_at = min(seen.turned("/ready", 503), seen.turned("/ready", 0))
    noticed_s, back_s = gone_at - struck_at, max(tap.released.values()) - struck_at
    print(f"{fault}: not ready after {noticed_s:.2f} s, handed back after {back_s:.2f} s, longest gap {gap_s:.2f} s")
    assert noticed_s < noticed_within_s + 5
    assert back_s < noticed_within_s + 5
    sound.terminate()
    assert await asyncio.to_thread(sound.wait, 30) == 0
