"""`headrace up --secure`: everybody with an identity of his own, and nobody who lacks a permission."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from broker.connection import BrokerOptions
from headrace import Headrace, RequestFault
from load.pipeline import Pipeline
from load.simulated_truth import prompt_of
from tests.acceptance.processes import processes_of
from tests.acceptance.streams import begin, begun, ended
from tests.acceptance.waiting import until

pytestmark = pytest.mark.timeout(120)

POISON = 300
"""A token id that no prompt of `prompt_of` has."""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pipeline]:
    """Two workers and two postprocesses behind TLS; a prompt with the token `POISON` kills a worker."""
    folder = tmp_path_factory.mktemp("secure")
    arguments = ["--engine", "simulated", "--secrets", str(folder / "secrets"), "--store", str(folder / "nats")]
    for stage, count in {"edge": 1, "inference": 2, "postprocess": 2}.items():
        arguments += ["--replicas", f"{stage}={count}"]
    for setting in ("inference.simulated_step_ms=5", f"inference.simulated_poison={POISON}", "topology.partitions=4"):
        arguments += ["--set", setting]
    pipeline = Pipeline(folder, arguments)
    yield pipeline
    assert pipeline.stop() == 0, pipeline.output[-3000:]
    assert not violations(pipeline), "also of those who drained"


def violations(pipeline: Pipeline) -> list[str]:
    """What the server refused, by its own log."""
    log = (pipeline.folder / "nats" / "nats-server.log").read_text(errors="replace")
    return re.findall(r".*(?:Violation|violation|authentication error).*", log)


@asynccontextmanager
async def client_of(pipeline: Pipeline) -> AsyncGenerator[Headrace]:
    """The tenant `default`, by its identity."""
    identity = pipeline.folder / "secrets" / "tenants" / "default"
    async with Headrace(options=BrokerOptions(pipeline.url, identity=str(identity))) as client:
        yield client


async def command(pipeline: Pipeline, *arguments: str) -> str:
    """What a command without a word about the broker says: it finds the pipeline of this user."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stages.cli", *arguments),
        env={**pipeline.environ, "PYTHONPATH": str(Path.cwd())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, complained.decode()
    return said.decode()


async def test_answers(secure: Pipeline) -> None:
    """Over NATS as a tenant, over HTTP, by the command line; also what is stored of it, and a cancel."""
    async with client_of(secure) as client:
        assert secure.url.startswith("tls://")
        done = await client.complete(prompt=prompt_of(1), max_tokens=20, request_id="asked")
        assert len(done.choices[0].ids) == 20
        assert (await client.tokenize(prompt="some words")).tokens
        running = begin(client, 2, 5000)
        await begun([running])
        await client.cancel(running.told.id)
        with pytest.raises(RequestFault, match="cancelled"):
            await asyncio.wait_for(running.done, 10)
    async with httpx.AsyncClient(base_url=secure.api_url, timeout=20) as http:
        body = {"model": "simulated", "input": "Hello!", "max_output_tokens": 16}
        created = (await http.post("/responses", json=body)).raise_for_status().json()
        assert (await http.get(f"/responses/{created['id']}")).json()["id"] == created["id"], "kept by an edge"
    assert json.loads(await command(secure, "ask", "Hi", "--max-tokens", "5", "--json"))
    assert await command(secure, "attach", "asked")
    assert "request default.asked: ended" in await command(secure, "explain", "asked")
    assert not violations(secure)


async def test_deaths(secure: Pipeline) -> None:
    """A worker and an owner of partitions die in mid-answer: every text is right, within the permissions."""
    async with client_of(secure) as client:
        streams = [begin(client, number, 500) for number in range(10, 18)]
        await begun(streams)
        for stage in ("inference", "postprocess"):
            processes_of(secure, stage)[0].send_signal(signal.SIGKILL)
        await ended(streams)
    await until(lambda: all(len(processes_of(secure, stage)) == 2 for stage in ("inference", "postprocess")), "both")
    assert not violations(secure)


async def test_a_dead_letter(secure: Pipeline) -> None:
    """A request that kills its workers goes to DEAD, where the operator finds it."""
    async with client_of(secure) as client:
        with pytest.raises(RequestFault, match="3 workers in a row died"):
            async with asyncio.timeout(40):
                await client.complete(prompt=[*prompt_of(66), POISON], max_tokens=20, request_id="poisonous")
    letters = json.loads(await command(secure, "dead", "list", "--json"))
    assert ["poisonous" in json.dumps(letter) for letter in letters] == [True]
    status = json.loads(await command(secure, "status", "--json"))
    assert [len(status["workers"]), len(status["partitions"])] == [2, 4]
    assert json.loads(await command(secure, "models", "--json"))[0]["name"] == "simulated"
    assert not violations(secure)
