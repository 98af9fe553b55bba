"""The figures of a run: whose CPU time counts, and what is left out where it was not measured."""

from typing import Any

import msgspec
import pytest

from load.reporting import arms
from load.reporting import metrics as m
from load.reporting.cost import Prices
from load.reporting.results import Run
from tests.unit.load.reporting.factory import C64, gpu, line, process, results

PROCESSES = [
    process("engine-core-0", "engine", 8.0),
    process("nats-server-0", "broker", 2.0),
    process("postprocess-0", "server", 4.0),
    process("postprocess-1", "server", 6.0),
    process("generate-0", "client", 5.0),
]


def run(**changed: Any) -> Run:
    """40 requests/s and 5,120 tokens/s for 20 s on 2 cores, 20 CPU seconds for serving."""
    return msgspec.convert({**line(processes=PROCESSES), **changed}, Run)


def test_cpu() -> None:
    """Serving is server, broker and engine core; the client is shown apart, and is nobody's cost."""
    assert m.CPU_USE.of(run()) == pytest.approx(100 * 20 / 20 / 2)
    assert m.CPU_CLIENT.of(run()) == pytest.approx(100 * 5 / 20 / 2)
    assert m.CPU_TOKENS.of(run()) == pytest.approx(20_000 / (5120 * 20 / 1000))
    assert m.CPU_OUTSIDE.of(run()) == pytest.approx(12_000 / (5120 * 20 / 1000))
    assert m.CPU_REQUEST.of(run()) == pytest.approx(20_000 / (40 * 20))


def test_client_from_itself() -> None:
    """Where the client was not watched from outside, its own reading stands in."""
    assert m.CPU_CLIENT.of(run(processes=PROCESSES[:-1], client_cpu_s=1.0)) == pytest.approx(100 * 1 / 20 / 2)


@pytest.mark.parametrize("metric", [m.CPU_USE, m.CPU_TOKENS, m.CPU_OUTSIDE, m.CPU_REQUEST, m.cost(Prices())])
def test_no_processes(metric: m.Metric) -> None:
    """Nobody watched the processes: no CPU time is not the same as 0."""
    assert metric.of(run(processes=[])) is None


def test_gpus() -> None:
    """Several GPUs: the mean of their busy shares; and requests for each second that any of them works."""
    two = run(gpu=[gpu(0.5), gpu(1.0)])
    assert m.GPU_BUSY.of(two) == pytest.approx(75.0)
    assert m.FILLED.of(two) == pytest.approx(40 / 1.5)
    assert m.GPU_BUSY.of(run(gpu=[])) is None
    assert m.FILLED.of(run(gpu=[gpu(0.0)])) is None


def test_cost() -> None:
    """All GPUs, and the one core that 20 CPU seconds in 20 s are."""
    dollars = m.cost(Prices(4.0, 1.0)).of(run(gpu=[gpu(0.5), gpu(1.0)]))
    assert dollars == pytest.approx((2 * 4 + 1) / (5120 * 3600) * 1e6)


def test_latency() -> None:
    """Percentiles as they stand in the line; without them nothing."""
    assert (m.TTFT_P50.of(run()), m.ITL_P99.of(run()), m.E2E_P99.of(run())) == (100, 20, 3000)
    assert m.TTFT_P50.of(run(ttft_ms=None)) is None


def test_lost() -> None:
    """Errors, refusals, answers without an end or with wrong text: none of them is an answer."""
    assert m.LOST.of(run(errors={"timeout": 2, "internal": 1}, rejected=3, unfinished=4, wrong_text=5)) == 15
    assert m.LOST.of(run(wrong_text=None)) == 0


def test_ratio_pairs_repeats() -> None:
    """A ratio is taken within each repeat: one that both arms spent on a slower machine changes nothing."""
    ours = [line(repeat=n, requests_s=v) for n, v in enumerate((30.0, 60.0, 90.0))]
    theirs = [line(arms.MONOLITH, repeat=n, requests_s=v) for n, v in enumerate((15.0, 30.0, 45.0))]
    found = m.REQUESTS_S.ratio(results(*ours, *theirs), C64, arms.NATS, arms.MONOLITH)
    assert found
    assert (found.low, found.median, found.high) == (2.0, 2.0, 2.0)
    assert m.REQUESTS_S.ratio(results(*ours), C64, arms.NATS, arms.MONOLITH) is None
