"""CPU time by kind of process, and the cores that follow from it."""

import math

import pytest

from load.reporting import arms
from load.reporting.capacity import FILL, ceiling, cores, need
from load.reporting.processes import Kind, kind, kinds
from load.reporting.spread import Spread
from tests.unit.load.reporting.factory import C64, line, process, results

TOKENS = 5120 * 20


def test_replicas_are_one_kind() -> None:
    """`postprocess-0` and `-1` count together, for CPU time and memory; the client does not count at all."""
    stages = [process("postprocess-0", "server", 1.024, 100), process("postprocess-1", "server", 2.048, 150)]
    [found] = kinds(results(line(processes=[*stages, process("generate-0", "client", 9.0)])), C64, arms.NATS)
    assert (found.name, found.role) == ("postprocess", "server")
    assert found.cpu_ms.median == pytest.approx(3072 / (TOKENS / 1000))
    assert found.peak_mb == Spread(250, 250, 250, 1)


def test_order() -> None:
    """Engine core, broker, then the stages as a request passes them, then what is nobody's stage."""
    names = ["gateway-0", "postprocess-0", "schedule-0", "preprocess-0", "edge-0"]
    watched = [*(process(name, "server", 1.0) for name in names), process("nats-server-0", "broker", 1.0)]
    found = kinds(results(line(processes=[*watched, process("engine-core-0", "engine", 1.0)])), C64, arms.NATS)
    ordered = ["engine-core", "nats-server", "edge", "preprocess", "schedule", "postprocess", "gateway"]
    assert [one.name for one in found] == ordered


def test_names() -> None:
    """Only the number at the end goes; a name that is all number stays."""
    assert [kind(name) for name in ("edge-12", "vllm-api-server-0", "nats-server", "7")] == [
        "edge",
        "vllm-api-server",
        "nats-server",
        "7",
    ]


def test_not_watched() -> None:
    """Without processes there is nothing, not zeros."""
    assert not kinds(results(line(processes=[])), C64, arms.NATS)


def test_cores() -> None:
    """100 ms for 1,000 tokens are one core at 10,000 tokens/s, and no tokens/s more fit on it."""
    assert cores(100.0, 10_000) == pytest.approx(1.0)
    assert ceiling(100.0) == pytest.approx(10_000)
    assert math.isinf(ceiling(0.0))


@pytest.mark.parametrize(
    ("name", "role", "cpu_ms", "processes"),
    [
        ("postprocess", "server", 69.0, 1),
        ("postprocess", "server", 71.0, 2),
        ("postprocess", "server", 141.0, 3),
        ("nats-server", "broker", 250.0, 1),
        ("engine-core", "engine", 99.0, 1),
        ("engine-core", "engine", 101.0, 0),
        ("inference-front", "server", 101.0, 0),
    ],
)
def test_need(name: str, role: str, cpu_ms: float, processes: int) -> None:
    """At 10,000 tokens/s a stage gets as many processes as keep each below its fill; what serves one GPU, no second."""
    found = need(Kind(name, role, Spread(cpu_ms, cpu_ms, cpu_ms, 1), None), 10_000)
    assert found.cores == pytest.approx(cpu_ms / 100)
    assert found.processes == processes
    assert found.processes * FILL >= found.cores or name != "postprocess"
