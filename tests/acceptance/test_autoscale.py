"""Replicas that come and go while a pipeline serves: by hand, by the autoscaler, from zero and to zero."""

import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Headrace
from load.pipeline import ROOT, Pipeline, terminate
from tests.acceptance.conftest import running
from tests.acceptance.processes import events, processes_of
from tests.acceptance.streams import begin, begun, ended
from tests.acceptance.waiting import eventually, until
from tests.acceptance.wiretap import listening

pytestmark = pytest.mark.timeout(120)

SIMULATED = ["--engine", "simulated", "--set", "inference.simulated_step_ms=5"]
QUICK = {"idle_s": "2", "cooldown_s": "1", "remember_s": "2", "smooth_s": "1", "start_s": "1"}
"""A pipeline that is idle for two seconds does without workers."""

numbers = itertools.count(1)
"""Every request of this file gets one of its own."""


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """Without a worker, and without anybody who would start one."""
    with running(tmp_path, [*SIMULATED, "--replicas", "inference=0"]) as pipeline:
        yield pipeline


@contextlib.contextmanager
def autoscaler(pipeline: Pipeline, *arguments: str) -> Generator[Path]:
    """`headrace autoscale` beside the pipeline: its log. It has to end cleanly when it is told to."""
    log = pipeline.folder / "autoscale.log"
    sets = [text for name, value in QUICK.items() for text in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "stages.cli", "autoscale", "--every", "1s", *sets, *arguments]
    environ = {**pipeline.environ, "HEADRACE_NATS_URL": pipeline.url}
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield log
        finally:
            status = terminate(process)
    assert status == 0, log.read_text()


def decided(log: str) -> list[tuple[str, int, int]]:
    """What was scaled, from and to how many."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [(each["stage"], each["from"], each["to"]) for each in lines if each["event"] == "autoscale.decided"]


def scale(pipeline: Pipeline, *wanted: str) -> Any:
    """What `headrace scale` says there is then."""
    done = pipeline.run("scale", "--json", *wanted)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def workers(pipeline: Pipeline) -> int:
    return len(processes_of(pipeline, "inference"))


async def test_from_zero_and_back_to_zero(pipeline: Pipeline) -> None:
    """Requests for a model that has no worker wait; one starts, all are answered; idle, it goes; and again."""
    scale(pipeline, "inference=1")
    async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap:
        await until(lambda: bool(tap.alive), "the worker that publishes the model's card")
        await ended([begin(client, next(numbers), 20)])
        scale(pipeline, "inference=0")
        await until(lambda: not workers(pipeline), "no worker")
        streams = [begin(client, next(numbers), 50) for _ in range(8)]
        await until(lambda: waiting(tap.messages("TICKETS"), 8), "tickets that wait")
        await asyncio.sleep(1)
        assert not any(stream.done.done() for stream in streams)
        with autoscaler(pipeline, "--stage", "inference=0..1") as log:
            await ended(streams, seconds=30)
            await until(lambda: not workers(pipeline), "no worker again")
            await ended([begin(client, next(numbers), 50) for _ in range(4)], seconds=30)
        assert workers(pipeline) == 1, "its end leaves replicas as they are"
        assert decided(log.read_text()) == [("inference", 0, 1), ("inference", 1, 0), ("inference", 0, 1)]


async def waiting(messages: Any, wanted: int) -> bool:
    return await messages == wanted


async def test_a_pipeline_that_scales_itself(tmp_path: Path) -> None:
    """`up --autoscale`: a model that nobody has served yet gets a worker once, so that requests for it can wait."""
    sets = [text for name, value in QUICK.items() for text in ("--set", f"autoscale.{name}={value}")]
    arguments = [*SIMULATED, "--replicas", "inference=0", "--autoscale", "inference=0..1", *sets]
    with running(tmp_path, [*arguments, "--set", "autoscale.every_s=1"]) as pipeline:
        async with Headrace(pipeline.url) as client:
            await until(lambda: len(events(pipeline, "inference", "stage.ended")) == 1, "a worker that came and went")
            assert [card.slug for card in await client.models()] == ["simulated"]
            await ended([begin(client, next(numbers), 50) for _ in range(4)], seconds=30)
        assert decided(pipeline.output)[:3] == [("inference", 0, 1), ("inference", 1, 0), ("inference", 0, 1)]


async def test_scaling_down_under_load_loses_nothing(tmp_path: Path) -> None:
    """Three workers become one, two of every other stage become one, with streams in progress: all of them go on."""
    of_two = [text for each in ("preprocess", "schedule", "postprocess") for text in ("--replicas", f"{each}=2")]
    arguments = [*SIMULATED, *of_two, "--replicas", "inference=3", "--set", "process.grace_s=2"]
    with running(tmp_path, arguments) as pipeline:
        async with Headrace(pipeline.url) as client, listening(pipeline.url) as tap:
            streams = [begin(client, next(numbers), 1500) for _ in range(15)]
            await begun(streams)
            assert len(tap.alive) == 3
            state = scale(pipeline, "inference=1", "preprocess=1", "schedule=1", "postprocess=1")
            assert set(state["replicas"].values()) == {1}
            streams += [begin(client, next(numbers), 200) for _ in range(15)]
            gap_s = await ended(streams)
            await tap.settled()
            ends = await asyncio.gather(*(tap.terminal(stream.told.id) for stream in streams))
            assert ends == ["length"] * len(streams)
            resumed = sum(count > 1 for count in tap.opens.values())
            print(f"{len(streams)} answers, {resumed} of them resumed elsewhere, longest gap {gap_s:.2f} s")
            assert resumed, "the grace time was long enough for everything: nothing was handed back"
        state = scale(pipeline)
        assert (state["ready"], state["stopping"]) == (dict.fromkeys(state["ready"], 1), {})


async def test_a_dry_run_says_what_it_would_do_and_changes_nothing(pipeline: Pipeline) -> None:
    """What it sees, how many there would be, and why."""
    done = pipeline.run("autoscale", "--dry-run", "--once", "--stage", "inference=1..4", "--stage", "preprocess=1..2")
    assert done.returncode == 0, done.stderr
    first, second = (line.partition(" ")[2] for line in done.stdout.splitlines())
    assert first.startswith("inference     0 → 1  (waiting 0; 0 ready): no worker has published")
    assert second.startswith("preprocess    1 → 1  (waiting 0; 1 ready): ")
    state = scale(pipeline)
    assert (state["replicas"]["inference"], workers(pipeline)) == (0, 0)


def test_a_secured_pipeline_is_scaled_by_one_who_may_only_look(tmp_path: Path) -> None:
    """`headrace autoscale` takes the identity of the observer, and a process that is added has that of its role."""
    with running(tmp_path, [*SIMULATED, "--secure", "--replicas", "inference=0"]) as pipeline:
        environ = {name: value for name, value in pipeline.environ.items() if name != "HEADRACE_NATS_URL"}
        command = [sys.executable, "-m", "stages.cli", "autoscale", "--once"]
        for stage in ("inference=0..1", "preprocess=1", "postprocess=1"):
            command += ["--stage", stage]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        assert "nobody knows" not in done.stdout
        assert done.stdout.splitlines()[0].partition(" ")[2].startswith("inference     0 → 1  ")
        eventually(lambda: scale(pipeline)["ready"]["inference"] == 1, 20, "a worker that is ready")
