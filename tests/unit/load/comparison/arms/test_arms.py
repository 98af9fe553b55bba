"""Every arm starts its own system, alike in what they have in common, and leaves nothing behind."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from load.comparison.arms import ARMS
from load.comparison.arms.arm import Arm
from load.comparison.peers import Peer
from load.comparison.setup import Setup
from load.reporting.arms import ORDER

READY = "OpenAI API: http://127.0.0.1:1/v1\nready after 2.0 s: nats://127.0.0.1:2\n"
SERVED = [name for name in ARMS if name != "engine-only"]


class StandIn:
    """A process that is never started, and is ready at once."""

    all: ClassVar[list["StandIn"]] = []

    def __init__(self, name: str, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        self.name, self.command, self.environ, self.folder = name, [*command], environ, folder
        self.out, self.ended, self.pid = READY, True, len(self.all) + 1
        self.stopped = False
        self.all.append(self)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        assert ready()

    def stop(self) -> None:
        self.stopped = True


def yes(*_: object) -> bool:
    """Whatever is asked."""
    return True


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """Nothing is started or installed, and everything answers."""
    StandIn.all = []
    for module in ("arm", "smg"):
        monkeypatch.setattr(f"load.comparison.arms.{module}.Started", StandIn)
    for module in ("headrace", "vllm_serve", "smg"):
        monkeypatch.setattr(f"load.comparison.arms.{module}.answers", yes)
    monkeypatch.setattr(Peer, "install", yes)
    return StandIn.all


def started(name: str, folder: Path, gpus: int = 1) -> tuple[Arm, Setup]:
    for log in ("gpu.jsonl", "gpu-1.jsonl", "gpu-2.jsonl"):
        (folder / log).touch()
    return ARMS[name](), Setup("checkpoint", "named", "fast", gpus, folder)


def option(command: Sequence[str], name: str) -> str:
    return command[[*command].index(name) + 1]


@pytest.mark.parametrize("name", SERVED)
def test_alike(name: str, tmp_path: Path, processes: list[StandIn]) -> None:
    """The same model under the same name, the same options of vLLM, the same GPU, on loopback."""
    arm, setup = started(name, tmp_path)
    endpoint = arm.start(setup)
    assert endpoint.model == "named"
    assert "127.0.0.1:" in endpoint.url
    engine = next(one for one in processes if "checkpoint" in one.command)
    words = " ".join(engine.command)
    assert " ".join(setup.engine_flags()) in words or " ".join(setup.engine_settings()) in words
    assert engine.environ["HEADRACE_GPU_PROFILE"] == "fast"
    logs = [engine.environ["HEADRACE_GPU_LOG"].replace("{pid}", number) for number in ("1", "2")]
    assert {str(log) for log in endpoint.gpu_logs} == set(logs)


@pytest.mark.parametrize("name", SERVED)
def test_stopped(name: str, tmp_path: Path, processes: list[StandIn]) -> None:
    """All that an arm started is stopped; it says of which processes it consists, so that they can be watched."""
    arm, setup = started(name, tmp_path)
    arm.start(setup)
    assert arm.roots
    arm.stop()
    assert all(process.stopped for process in processes)
    assert arm.roots == []


def test_two_gpus(tmp_path: Path, processes: list[StandIn]) -> None:
    """Headrace takes a worker more for a GPU more, with a log each."""
    arm, setup = started("headrace-nats", tmp_path, gpus=2)
    endpoint = arm.start(setup)
    assert "inference=2" in processes[0].command
    assert len(endpoint.gpu_logs) == 2 <= arm.gpus
    assert endpoint.url == "nats://127.0.0.1:2"


def test_edge(tmp_path: Path, processes: list[StandIn]) -> None:
    """An edge runs for those who speak HTTP to it, and only then."""
    for name, edges in (("headrace-http", "edge=1"), ("headrace-nats", "edge=0")):
        arm, setup = started(name, tmp_path)
        arm.start(setup)
        assert edges in processes[-1].command


def test_variants_of_the_monolith(tmp_path: Path, processes: list[StandIn]) -> None:
    """They differ in one option each."""
    for name in ("vllm-serve", "vllm-serve-api2", "vllm-serve-interval8"):
        arm, setup = started(name, tmp_path)
        arm.start(setup)
    stock, two, tuned = (process.command for process in processes)
    assert "--api-server-count" not in stock
    assert "--stream-interval" not in stock
    assert option(two, "--api-server-count") == "2"
    assert option(tuned, "--stream-interval") == "8"


@pytest.mark.parametrize(("name", "servicer"), [("smg-python", "python"), ("smg-rust", "rust")])
def test_gateway(name: str, servicer: str, tmp_path: Path, processes: list[StandIn]) -> None:
    """The gateway speaks gRPC to the worker that was started for it, with both of its tokenizer caches on."""
    arm, setup = started(name, tmp_path)
    arm.start(setup)
    worker, probe, gateway = processes
    assert option(worker.command, "--servicer-impl") == servicer
    assert "--grpc" in worker.command
    port = option(worker.command, "--port")
    assert probe.command[-1] == port
    assert option(gateway.command, "--worker-urls") == f"grpc://127.0.0.1:{port}"
    assert {"--tokenizer-cache-enable-l0", "--tokenizer-cache-enable-l1"} <= set(gateway.command)
    assert worker.command[0] != gateway.command[0]
    assert f"smg-{servicer}" in gateway.command[0]


def test_engine_only(tmp_path: Path, processes: list[StandIn]) -> None:
    """Nothing is started: the load generator is told how to start the engine core itself."""
    arm, setup = started("engine-only", tmp_path)
    endpoint = arm.start(setup)
    assert processes == []
    assert arm.roots == []
    assert endpoint.target == "engine"
    assert endpoint.model == "checkpoint"
    assert [*endpoint.arguments] == setup.engine_settings()
    assert endpoint.environ["HEADRACE_GPU_LOG"] == str(endpoint.gpu_logs[0])


def test_environment_of_headrace(tmp_path: Path, processes: list[StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that a person's own environment names is not the one that is measured."""
    monkeypatch.setenv("HEADRACE_NATS_URL", "nats://production")
    arm, setup = started("headrace-nats", tmp_path)
    arm.start(setup)
    assert "HEADRACE_NATS_URL" not in processes[0].environ
    assert os.environ["HEADRACE_NATS_URL"] == "nats://production"


def test_reported() -> None:
    """The report knows every arm."""
    assert set(ARMS) == set(ORDER)
