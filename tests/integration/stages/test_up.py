"""`headrace up` as a person uses it: real processes of every stage, a broker of its own, the simulated engine."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import pytest_asyncio

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "stages.cli")
QUICK = ("--engine", "simulated", "--set", "topology.partitions=2")

pytestmark = pytest.mark.timeout(120)

Process = asyncio.subprocess.Process


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A machine on which no other pipeline runs."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "HEADRACE_GRACE_S": "15", "NO_COLOR": "1"}


async def headrace(environ: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of one command."""
    process = await start(environ, *arguments)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def start(environ: dict[str, str], *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT, env=environ
    )


class Pipeline:
    """A running `headrace up`. `seen` are all processes that it had when it was ready, `api_url` what it printed."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.api_url = ""

    async def ready(self) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            while line := await self.process.stdout.readline():
                if line.startswith(b"OpenAI API: "):
                    self.api_url = line.decode().split()[-1]
                if line.startswith(b"ready after"):
                    self.seen = psutil.Process(self.process.pid).children(recursive=True)
                    return
        raise AssertionError((await self.process.communicate())[1].decode())

    def of_stage(self, stage: str) -> psutil.Process:
        return next(each for each in self.seen if each.cmdline()[-2:] == ["stage", stage])

    async def nothing_left(self) -> None:
        await eventually(lambda: not any(is_running(each) for each in self.seen))


@pytest_asyncio.fixture
async def pipeline(environ: dict[str, str], tmp_path: Path) -> AsyncIterator[Pipeline]:
    process = await start(environ, "up", *QUICK, "--logs", str(tmp_path / "logs"))
    pipeline = Pipeline(process)
    try:
        await pipeline.ready()
        yield pipeline
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_the_demo_answers_shows_what_it_cost_and_leaves_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    """`headrace up --demo --once`: an answer that says it is simulated, costs of every stage, status 0."""
    status, out, error = await headrace(environ, "up", "--demo", "--once", "--prompt", "Hello [b]?", *QUICK)
    assert status == 0, out + error
    assert "simulated: no model runs" in out
    assert "> Hello [b]?" in out
    for name in ("preprocess", "schedule", "inference", "postprocess", "TTFT", "ITL", "tokens of answer"):
        assert name in out
    assert list((tmp_path / "cache" / "headrace").iterdir()) == []


async def test_ask_status_and_models_find_the_running_pipeline(pipeline: Pipeline, environ: dict[str, str]) -> None:
    """Without a word about where it is; answers in text and in JSON."""
    status, out, error = await headrace(environ, "ask", "Hello?", "--max-tokens", "8")
    assert status == 0, error
    assert out.strip()
    assert "8 tokens of answer" in error
    status, out, error = await headrace(environ, "ask", "Hello?", "--max-tokens", "8", "--json")
    answer = json.loads(out)
    assert answer["choices"][0]["usage"]["completion_tokens"] == 8
    assert answer["choices"][0]["costs"]["ttft"] > 0
    found = json.loads((await headrace(environ, "status", "--json"))[1])
    assert len(found["workers"]) == 1
    assert all(each["owner"].startswith("postprocess-") for each in found["partitions"])
    cards = json.loads((await headrace(environ, "models", "--json"))[1])
    assert [card["engine"] for card in cards] == ["simulated"]
    status, out, error = await headrace(environ, "ask", "Hello?", "--model", "nobody")
    assert (status, error.partition(":")[2].strip().partition(":")[0]) == (1, "model_not_found")


async def test_an_openai_client_is_answered_where_it_says(pipeline: Pipeline, environ: dict[str, str]) -> None:
    """Over HTTP at the URL that it prints, on a port that no other pipeline has."""
    async with httpx.AsyncClient(base_url=pipeline.api_url, timeout=30) as client:
        body = {"messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 8}
        answer = (await client.post("chat/completions", json=body)).json()
    assert answer["usage"]["completion_tokens"] == 8
    port = urlsplit(pipeline.api_url).port
    status, _, error = await headrace(environ, "up", *QUICK, "--set", f"edge.port={port}")
    assert (status, error.strip()) == (2, f"--set edge.port={port}: another process listens there")


async def test_sigterm_stops_everything_in_order(pipeline: Pipeline, environ: dict[str, str], tmp_path: Path) -> None:
    """Every stage drains before the next is asked to; status 0, no process, no folder left, nothing to be found."""
    pipeline.process.terminate()
    assert await asyncio.wait_for(pipeline.process.wait(), 20) == 0
    await pipeline.nothing_left()
    times: list[str] = []
    for stage in ("preprocess", "schedule", "inference", "postprocess"):
        lines = (tmp_path / "logs" / f"{stage}.0.log").read_text().splitlines()
        log = [json.loads(line) for line in lines]
        times += [line["timestamp"] for line in log if line["event"] in ("stop.asked", "stage.ended")]
    assert len(times) == 8
    assert times == sorted(times)
    assert list((Path(environ["XDG_CACHE_HOME"]) / "headrace").iterdir()) == []


async def test_sigkill_leaves_no_process(pipeline: Pipeline) -> None:
    """Not the broker, not a stage, not an engine."""
    assert len(pipeline.seen) >= 5
    pipeline.process.kill()
    await pipeline.nothing_left()


async def test_a_second_signal_ends_everything_at_once(pipeline: Pipeline) -> None:
    """Although a stage hangs and would take its whole grace time."""
    os.kill(pipeline.of_stage("postprocess").pid, signal.SIGSTOP)
    pipeline.process.send_signal(signal.SIGINT)
    await asyncio.sleep(1.0)
    assert pipeline.process.returncode is None
    pipeline.process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(pipeline.process.wait(), 3) == 130
    await pipeline.nothing_left()


async def test_a_stage_that_died_is_started_again_and_answers(pipeline: Pipeline, environ: dict[str, str]) -> None:
    """Nobody has to do anything: the next question is answered."""
    os.kill(pipeline.of_stage("preprocess").pid, signal.SIGKILL)
    status, out, error = await headrace(environ, "ask", "Hello?", "--max-tokens", "4")
    assert status == 0, error
    assert out.strip()


async def test_a_store_keeps_its_number_of_partitions(environ: dict[str, str], tmp_path: Path) -> None:
    """As many as somebody asks for find room; later `up` takes what is there, and refuses to have others."""
    once = ("up", "--demo", "--once", "--engine", "simulated", "--store", str(tmp_path / "store"))
    many = ("--set", "topology.partitions=16", "--set", "topology.results_max_bytes=2147483648")
    status, _, error = await headrace(environ, *once, *many)
    assert status == 0, error
    status, _, error = await headrace(environ, *once, "--set", "topology.results_max_bytes=2147483648")
    assert status == 0, error
    status, _, error = await headrace(environ, *once, *many, "--set", "topology.partitions=3")
    assert status == 1
    assert "headrace.partitions is '16', wanted '3'" in error


async def test_a_model_that_is_not_there_ends_a_demo_with_the_reason(environ: dict[str, str], tmp_path: Path) -> None:
    """It does not try for ever, and what the worker said is on the screen."""
    missing = str(tmp_path / "no-model")
    status, _, error = await headrace(environ, "up", "--demo", "--once", "--model", missing, "--engine", "vllm")
    assert status == 2
    lines = error.splitlines()
    assert lines[0] == "inference.0 has wrong settings:"
    assert missing in lines[1] or "vLLM is not installed" in lines[1]
    assert [line.partition(":")[0] for line in lines[2:]] == ["logs"]


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def eventually(condition: Callable[[], bool], within_s: float = 15.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 — what is waited for happens in other processes
            await asyncio.sleep(0.05)
